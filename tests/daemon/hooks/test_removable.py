"""Which ended jobs are removed."""

from __future__ import annotations

import dataclasses

import msgspec

from carpool.core.model import JobId, Outcome
from carpool.daemon.config.limits import DAY_US as DAY
from carpool.daemon.hooks.retention import (
    JUST_ENDED,
    YOUNG,
    Keeping,
    Needed,
    awaited,
    removable,
)
from carpool.daemon.jobs.table import LONG_ROW, EndedJob
from carpool.protocol.api import SubmitRequest

NOW = 1000 * DAY
PLENTY = Keeping(90 * DAY, 1000, 1 << 40)


def keeping(**fields: int) -> Keeping:
    return dataclasses.replace(PLENTY, **fields)


def ended(number: JobId, age_us: int, owner: int = 1000, outcome: Outcome = Outcome.SUCCEEDED) -> EndedJob:
    return EndedJob(number, owner, outcome, msgspec.Raw(b"{}"), NOW - age_us, NOW - age_us)


def numbers(jobs: list[EndedJob], limits: Keeping, stay: tuple[JobId, ...] = ()) -> list[JobId]:
    return [job.id for job in removable(jobs, Needed(stay), limits, NOW)]


def test_jobs_that_are_too_old_go_and_the_oldest_first() -> None:
    jobs = [ended(1, 91 * DAY), ended(2, 92 * DAY), ended(3, 90 * DAY)]
    assert numbers(jobs, PLENTY) == [2, 1]


def test_of_too_many_jobs_the_oldest_go() -> None:
    jobs = [ended(number, (10 - number) * DAY) for number in range(1, 6)]
    assert numbers(jobs, keeping(jobs=3)) == [1, 2]


def test_nobodys_jobs_go_for_what_another_user_has() -> None:
    jobs = [ended(1, 9 * DAY), *(ended(number, (10 - number) * DAY, owner=1001) for number in range(2, 7))]
    assert numbers(jobs, keeping(jobs=3)) == [2, 3]


def test_a_job_that_has_just_ended_stays_whatever_the_limits_say() -> None:
    jobs = [ended(1, YOUNG + 1), ended(2, YOUNG), ended(3, 0), ended(4, 0)]
    assert numbers(jobs, keeping(jobs=2)) == [1]


def test_young_jobs_of_a_user_who_has_far_too_many_go_too() -> None:
    jobs = [ended(number, JUST_ENDED + 8 - number) for number in range(1, 8)]
    assert numbers(jobs[1:], keeping(jobs=3)) == [], "six are twice as many, and can wait for the hour"
    assert numbers(jobs, keeping(jobs=3)) == [1, 2, 3, 4]
    assert numbers([*jobs[1:], ended(8, JUST_ENDED, owner=1001)], keeping(jobs=3)) == []
    assert numbers([ended(number, JUST_ENDED) for number in range(1, 8)], keeping(jobs=3)) == [], "in this moment"


def test_young_jobs_that_take_far_too_much_memory_go_too() -> None:
    long = msgspec.Raw(b'"' + b"x" * 2 * LONG_ROW + b'"')
    jobs = [dataclasses.replace(ended(number, JUST_ENDED + 8 - number), info=long) for number in range(1, 8)]
    assert jobs[0].weight == 3
    assert numbers(jobs, keeping(jobs=11)) == []
    assert numbers(jobs, keeping(jobs=10)) == [1, 2, 3, 4]


def test_of_far_too_many_only_those_stay_that_others_still_wait_for() -> None:
    jobs = [
        ended(number, YOUNG, outcome=Outcome.FAILED if number == 2 else Outcome.SUCCEEDED) for number in range(1, 8)
    ]
    assert numbers(jobs, keeping(jobs=1), stay=(1, 2)) == [1, 3, 4, 5, 6]


def test_jobs_that_others_wait_for_and_the_newest_number_stay() -> None:
    waiting = SubmitRequest(["python"], "/", {}, after=[4, 6], after_any=[5, 7])
    assert awaited([waiting], [4, 5, 8, 9]) == {4, 5} and awaited([], [4]) == set()
    assert not removable([ended(8, 91 * DAY)], Needed((), 8), PLENTY, NOW)
    assert numbers([ended(4, 91 * DAY), ended(5, 91 * DAY)], PLENTY, stay=(4,)) == [5]
