"""Which ended jobs are removed."""

from __future__ import annotations

import msgspec

from carpool.core.model import JobId, Outcome
from carpool.daemon.config.limits import DAY_US as DAY
from carpool.daemon.config.limits import Size, Time, UserLimits
from carpool.daemon.jobs.table import EndedJob, JobRecord
from carpool.daemon.retention.selection import YOUNG, Keeping, keeping_of, needed, removable
from carpool.protocol.api import SubmitRequest

NOW = 1000 * DAY
PLENTY = Keeping(90 * DAY, 1000, 1 << 40)


def ended(number: JobId, age_us: int, owner: int = 1000) -> EndedJob:
    return EndedJob(number, owner, Outcome.SUCCEEDED, msgspec.Raw(b"{}"), NOW - age_us, NOW - age_us)


def numbers(
    jobs: list[EndedJob], keeping: Keeping, sizes: dict[JobId, int] | None = None, stay: tuple[JobId, ...] = ()
) -> list[JobId]:
    return [job.id for job in removable(jobs, sizes or {}, stay, keeping, NOW)]


def test_the_limits_are_those_of_the_file() -> None:
    limits = UserLimits(keep_for=Time(2 * DAY), keep_jobs=7, keep_size=Size(3072))
    assert keeping_of(limits) == Keeping(2 * DAY, 7, 3072)


def test_jobs_that_are_too_old_go_and_the_oldest_first() -> None:
    jobs = [ended(1, 91 * DAY), ended(2, 92 * DAY), ended(3, 90 * DAY)]
    assert numbers(jobs, PLENTY) == [2, 1]


def test_of_too_many_jobs_or_bytes_the_oldest_go() -> None:
    jobs = [ended(number, (10 - number) * DAY) for number in range(1, 6)]
    assert numbers(jobs, Keeping(90 * DAY, 3, 1 << 40)) == [1, 2]
    assert numbers(jobs, Keeping(90 * DAY, 1000, 100), dict.fromkeys(range(1, 6), 40)) == [1, 2, 3]


def test_nobodys_jobs_go_for_what_another_user_has() -> None:
    jobs = [ended(1, 9 * DAY), *(ended(number, (10 - number) * DAY, owner=1001) for number in range(2, 7))]
    assert numbers(jobs, Keeping(90 * DAY, 3, 1 << 40)) == [2, 3]
    assert numbers(jobs, Keeping(90 * DAY, 1000, 100), {1: 60, 6: 101}) == [2, 3, 4, 5, 6]


def test_a_job_that_has_just_ended_stays_whatever_the_limits_say() -> None:
    jobs = [ended(1, YOUNG + 1), ended(2, YOUNG), ended(3, 0)]
    assert numbers(jobs, Keeping(90 * DAY, 1, 1)) == [1]


def test_jobs_that_others_wait_for_and_the_newest_number_stay() -> None:
    waiting = JobRecord(9, 1000, 1000, SubmitRequest(["python"], "/", {}, after=[4, 6]), None, NOW)
    assert needed([waiting], [4, 6, 8, 9]) == {4, 6, 9}
    assert needed([], [4, 6, 8]) == {8} and needed([], []) == {0}
    assert numbers([ended(4, 91 * DAY), ended(5, 91 * DAY)], PLENTY, stay=(4,)) == [5]
