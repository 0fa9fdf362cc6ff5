"""What users submit: how much, how fast, and which numbers nobody gets."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from carpool.core.model import Attempt, JobPhase, Outcome, Reason
from carpool.daemon.jobs.info import LONGEST_COMMAND, last_info, shortened
from carpool.daemon.jobs.submissions import BurnedIds, JobAmounts, SubmissionRate, size_of
from carpool.daemon.jobs.table import Ended, JobRecord, JobTable
from carpool.protocol.api import JobInfo, SubmitRequest

SMALL = SubmitRequest(argv=["true"], cwd="/", env={})
LARGE = SubmitRequest(argv=["true"], cwd="/", env={"A": "x" * 10_000})


def test_jobs_count_with_their_environments_until_they_have_ended() -> None:
    assert size_of(LARGE) - size_of(SMALL) > 10_000
    held = JobAmounts()
    held.add(1, 1000, size_of(SMALL))
    held.add(2, 1000, size_of(LARGE))
    held.add(3, 1001, size_of(LARGE))
    assert held.of(1000) == (2, size_of(SMALL) + size_of(LARGE))
    held.remove(2)
    assert held.of(1000) == (1, size_of(SMALL)) and held.of(1001) == (1, size_of(LARGE))
    held.remove(2)
    held.remove(1)
    assert held.of(1000) == (0, 0)


def test_of_a_long_command_the_beginning_is_shown() -> None:
    assert shortened(["a", "b c"]) == ["a", "b c"]
    cut = shortened(["python", "x" * 10_000, "y"])
    assert cut[0] == "python" and cut[1].startswith("xxx") and "the rest" in cut[1] and len(cut) == 2
    assert sum(map(len, shortened(["x"] * 10_000))) < LONGEST_COMMAND + 50


def test_a_user_may_submit_so_many_at_once_and_goes_on_at_the_rate() -> None:
    now = [50.0]
    rate = SubmissionRate(100, 8, lambda: now[0])
    assert rate.left(1000) == 100
    rate.spend(1000, 95)
    assert rate.left(1000) == 5 and rate.left(1001) == 100, "users do not count for each other"
    now[0] += 1 / 16
    assert rate.left(1000) == 5
    now[0] += 1 / 16
    assert rate.left(1000) == 6, "halves of a job are not lost by asking"
    now[0] += 3600
    assert rate.left(1000) == 100


MOST = 30


@given(st.lists(st.integers(1, MOST)))
def test_it_has_what_was_added_and_nothing_else(numbers: list[int]) -> None:
    refused = BurnedIds()
    for number in numbers:
        refused.add(number)
    assert {number for number in range(-1, MOST + 2) if number in refused} == set(numbers)
    assert "1" not in refused


def test_a_refused_number_was_given_to_no_job() -> None:
    jobs = JobTable()
    first, second = jobs.new_id(), jobs.new_id()
    jobs.refused.add(second)
    assert [jobs.was_given(number) for number in (0, first, second, second + 1)] == [False, True, False, False]


# What stays in memory of a job that is over has a bound, whatever its user has submitted


LONG = 60_000


def ended(spec: SubmitRequest, text: str, attempts: int = 1) -> JobRecord:
    past = tuple(Ended(Attempt(text, "host0", False, 0), number, number + 1, 1) for number in range(1, attempts))
    job = JobRecord(7, 1000, 1000, spec, None, 1, past)
    job.phase, job.outcome, job.reason, job.started_us = JobPhase.ENDED, Outcome.FAILED, Reason("exit", text), 500
    return job


def test_long_texts_are_kept_as_their_beginning() -> None:
    job = ended(SubmitRequest(["python", "a" * LONG, "b" * LONG], "/" + "c" * LONG, {}), "d" * LONG, attempts=100)
    row = last_info(job)
    info = msgspec.json.decode(row, type=JobInfo)
    assert info.command[0] == "python" and len(info.command) == 2 and info.command[1].startswith("aaa")
    assert info.cwd.startswith("/ccc") and info.reason is not None and info.reason.text.startswith("ddd")
    assert info.reason.text.endswith("(the rest is in the journal)")
    assert [attempt.number for attempt in info.attempts] == [*range(81, 101)]
    assert len(row) < 40_000


def test_usual_jobs_are_kept_as_they_are() -> None:
    job = ended(SubmitRequest(["python", "train.py"], "/home/ada/work", {}), "ended with code 1", attempts=3)
    info = msgspec.json.decode(last_info(job), type=JobInfo)
    assert (info.command, info.cwd) == (["python", "train.py"], "/home/ada/work")
    assert info.reason is not None and info.reason.text == "ended with code 1"
    assert [attempt.number for attempt in info.attempts] == [1, 2, 3]
