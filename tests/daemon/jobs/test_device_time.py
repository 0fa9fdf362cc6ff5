"""Device time: turns, and of jobs that have their device to themselves the time for which they hold it."""

from __future__ import annotations

from typing import Any

from carpool.core.model import Attempt, Usage
from carpool.daemon.jobs.control import NEVER_ALONE, AloneTime, attempt_us, used_us
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.protocol.api import SubmitRequest

SECOND = 1_000_000


def job(turn_s: int, past: tuple[Ended, ...] = (), **spec: Any) -> JobRecord:
    """It has run since the tenth second."""
    made = JobRecord(1, 0, 0, SubmitRequest(["true"], "/", {}, **spec), None, 0, past=past, started_us=10 * SECOND)
    made.usage = Usage(device_us=turn_s * SECOND)
    return made


def test_turns_count_and_no_more_than_the_time_for_which_the_job_ran() -> None:
    assert used_us(job(4), 20 * SECOND) == 4 * SECOND
    assert used_us(job(2**40), 20 * SECOND) == 10 * SECOND
    waiting = job(4)
    waiting.started_us = None
    assert used_us(waiting, 20 * SECOND) == 0


def test_a_job_that_was_submitted_as_exclusive_holds_its_devices_all_the_time() -> None:
    assert used_us(job(4, exclusive=True), 20 * SECOND) == 10 * SECOND
    assert used_us(job(4, gpus=3), 20 * SECOND) == 30 * SECOND
    memory = Ended(Attempt("no memory", "host0", out_of_memory=True), 1, 2, device_us=SECOND)
    assert used_us(job(4, (memory,)), 20 * SECOND) == 11 * SECOND, "the attempt after it has run out of memory"


def test_a_job_that_turns_out_to_be_exclusive_holds_its_device_from_then_on() -> None:
    found = job(2)
    found.alone = found.alone.told(True, 14 * SECOND, 2 * SECOND)
    found.usage = Usage(device_us=3 * SECOND)
    assert attempt_us(found, 20 * SECOND) == 8 * SECOND, "two seconds of turns, then six of holding it"
    found.alone = found.alone.told(False, 20 * SECOND, 3 * SECOND)
    found.usage = Usage(device_us=4 * SECOND)
    assert attempt_us(found, 30 * SECOND) == 9 * SECOND
    assert found.alone.told(False, 40 * SECOND, 0) is found.alone and NEVER_ALONE.told(False, 1, 1) is NEVER_ALONE


def test_turns_that_are_longer_than_the_time_take_nothing_away() -> None:
    assert AloneTime(10 * SECOND, 0).until(12 * SECOND, 5 * SECOND) == 0
