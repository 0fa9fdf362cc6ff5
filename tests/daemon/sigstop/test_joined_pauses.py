"""Processes that have joined are stopped, continued and killed: real ones, in a table of jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from carpool.core.events import Event, PauseChanged
from carpool.core.model import JobPhase, Settings
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.sigstop import watchdog
from carpool.daemon.sigstop.stopped import LOOKS, JoinedPauses
from carpool.daemon.system import processes
from carpool.daemon.system.processes import is_ending, state_of
from carpool.protocol.api import SubmitRequest
from tests.daemon.daemon_harness import Daemon, until
from tests.tiers import RARER_WAY

ME = os.getuid()


class Scene:
    """A job whose process sleeps, and is not waited for."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        self.job = JobRecord(1, ME, 0, SubmitRequest(["python"], "/", {}), None, 1, phase=JobPhase.RUNNING)
        self.job.process = cast(Any, SimpleNamespace(pid=self.process.pid, left=False))
        jobs = JobTable()
        jobs.live[self.job.id] = self.job
        self.told: list[Event] = []
        noted = cast(JournalStore, SimpleNamespace(note_control=lambda job: None))
        self.pauses = JoinedPauses(jobs, noted, self.told.append)

    def signal(self, number: int, *states: str) -> None:
        self.process.send_signal(number)
        until(lambda: state_of(self.process.pid, ME) in states)

    def look(self, times: int) -> list[bool]:
        """Whether the process counted as stopped, after each look."""
        seen = []
        for _ in range(times):
            self.pauses.look()
            seen.append(self.job.stopped)
        return seen


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.process.kill()
    made.process.wait()


def test_a_stopped_one_is_paused_until_it_has_been_seen_running(scene: Scene) -> None:
    scene.signal(signal.SIGSTOP, "T")
    assert scene.look(1) == [True]
    scene.signal(signal.SIGCONT, "R", "S")
    assert scene.look(LOOKS) == [True] * (LOOKS - 1) + [False]
    assert scene.told == [PauseChanged(1, "a stop signal"), PauseChanged(1, None)]


def test_one_that_is_killed_while_it_is_stopped_was_stopped_to_its_end(scene: Scene) -> None:
    """Its launcher has cancelled it; its end may take longer than a few looks."""
    scene.signal(signal.SIGSTOP, "T")
    scene.look(1)
    scene.signal(signal.SIGKILL, "Z")
    assert scene.look(LOOKS + 1) == [True] * (LOOKS + 1)


def test_a_process_ends_from_its_last_instruction_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = scene.process.pid
    assert not is_ending(pid)
    fields = processes.stat_fields(pid)
    exiting = [b"R", *fields[1:6], str(int(fields[6]) | 4).encode(), *fields[7:]]  # no memory to free takes long here
    with monkeypatch.context() as patched:
        patched.setattr(processes, "stat_fields", lambda _: exiting)
        assert is_ending(pid)
    scene.signal(signal.SIGKILL, "Z")
    assert is_ending(pid)
    scene.process.wait()
    assert is_ending(pid)


# Holders that keep their turn, with a real daemon: what other jobs lose is the lease, and no more


@pytest.mark.nightly(RARER_WAY, stays="tests/daemon/sigstop/test_watchdog.py::test_who_keeps_its_turn_is_killed")
def test_a_service_that_keeps_its_turn_is_killed(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"forced_after_us": 100_000}})
    service = daemon.fake("attach", "turn", "say:mine", "pause", service=1, line="mine")
    other = daemon.fake("attach", "turn", "release")
    assert daemon.wait(other)["outcome"] == "succeeded"
    ended = daemon.wait(service)
    assert ended["signal"] == signal.SIGKILL and ended["reason"]["code"] == "lease"
    assert "killed by Carpool: it did not give its turn back within 10 s" in ended["reason"]["text"]


def first(events: list[dict[str, Any]], job: int, *kinds: str) -> dict[str, Any]:
    return next(event for event in events if event["kind"] in kinds and event["job"] == job)


def test_a_stopped_holder_has_a_second_and_not_the_lease(daemon: Daemon) -> None:
    """It is continued with the first request, which others of its kind may answer at a boundary within 10 s."""
    deadline_us = int(watchdog.POLLS * watchdog.POLL_S * 1e6)
    assert deadline_us == 1_000_000 and Settings().forced_after_us >= watchdog.LEASE_S * 1e6 == 10 * deadline_us
    holder = daemon.fake("attach", "help", "turn", "say:mine", "pause", line="mine")
    pid = daemon.show(holder)["pid"]
    os.kill(pid, signal.SIGSTOP)
    other = daemon.fake("attach", "turn", "release")
    assert daemon.wait(other)["outcome"] == "succeeded"
    events = daemon.events()
    asked = first(events, holder, "RequestYield")
    gone = first(events, holder, "TurnReleased", "TurnPassed")
    assert not asked["data"]["forced"], "the core has not asked by force before"
    # It has let go the first time it was continued.  When it was looked at is up to the machine, but before its lease.
    assert "released nothing" not in daemon.log() and "is killed" not in daemon.log()
    assert 0 <= gone["now_us"] - asked["now_us"] < watchdog.LEASE_S * 1e6
    assert daemon.show(holder)["phase"] == "running" and not daemon.show(holder)["holds_turn"]
    until(lambda: state_of(pid, ME) == "T")
    until(lambda: not list(daemon.home.glob("continued-*")))
