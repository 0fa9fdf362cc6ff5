"""A daemon removes jobs that ended long ago: rows, directories, and what is in memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from carpool.core.model import JobId, Outcome
from carpool.daemon.config.limits import DAY_US as DAY
from carpool.daemon.hooks.retention import JUST_ENDED, YOUNG, Keeping, Needed, awaited, removable
from carpool.daemon.jobs.table import LONG_ROW, EndedJob, JobRecord
from carpool.daemon.journal.events import JournalRemoval
from carpool.daemon.journal.records import INSERT_JOB, job_row
from carpool.protocol.api import SubmitRequest
from tests.daemon.daemon_harness import Daemon, Make, as_nobody, refusal, submission, until
from tests.daemon.journal_file import opened, sql

WAITS = "import signal; signal.pause()"


def make_old(home: Path, *jobs: int) -> None:
    """As if they had ended, and everything in the event log had happened, a hundred days ago."""
    for job in jobs:
        sql(home / "journal.sqlite", "UPDATE jobs SET ended_us = ended_us - ? WHERE id = ?", 100 * DAY, job)
    sql(home / "journal.sqlite", "UPDATE events SET wall_us = wall_us - ?", 100 * DAY)


def until_removed(daemon: Daemon) -> None:
    """The directories are what the daemon deletes last."""
    until(lambda: "removed" in daemon.log() and not list((daemon.home / "removed").iterdir()))


def removed_when_old(daemon: Daemon, *jobs: int) -> None:
    """Another daemon comes in a hundred days, and removes what is too old."""
    daemon.terminate()
    make_old(daemon.home, *jobs)
    daemon.started()
    until_removed(daemon)


def numbers(daemon: Daemon) -> list[int]:
    return [job["id"] for job in daemon.get("/v1/jobs")["jobs"]]


def test_old_jobs_leave_the_journal_the_disk_and_the_lists(daemon: Daemon) -> None:
    first, second, third = (daemon.submit("echo", "text", ended=True) for _ in range(3))
    last = daemon.events()[-1]["seq"]
    removed_when_old(daemon, first, second)
    assert numbers(daemon) == [third]
    assert [path.name for path in (daemon.home / "jobs").iterdir()] == [str(third)]
    for table, column in (("jobs", "id"), ("attempts", "job"), ("placements", "job")):
        assert sql(daemon.home / "journal.sqlite", f"SELECT DISTINCT {column} FROM {table}") == [(third,)]
    assert daemon.output(third) == "text\n"
    assert sql(daemon.home / "journal.sqlite", "SELECT min(seq) FROM events")[0][0] >= last  # the last one stays

    refused = refusal(lambda: daemon.show(second))
    assert (refused.status, refused.code) == (404, "removed_job")
    assert refused.message == f"job {second} ended and has been removed" and "for 90d00h" in refused.hint
    assert refusal(lambda: daemon.show(third + 1)).code == "unknown_job"
    refused = refusal(lambda: daemon.submit("true", after=[first]))
    assert refused.code == "unknown_dependency" and f"job {first} ended and has been removed" in refused.message
    assert f"leave --after {first} out" in refused.hint


def test_what_jobs_wait_for_stays_and_numbers_go_on(daemon: Daemon) -> None:
    done, runs, unrelated = daemon.submit("true", ended=True), daemon.python(WAITS), daemon.submit("true", ended=True)
    waiting = daemon.submit("true", after=[done, runs])
    removed_when_old(daemon, done, unrelated)
    assert numbers(daemon) == [done, runs, waiting]
    daemon.cancel(runs)
    daemon.wait(waiting)
    daemon.terminate()
    make_old(daemon.home, done, runs, waiting)
    daemon.started()
    until(lambda: numbers(daemon) == [waiting])
    daemon.terminate()
    seq = sql(daemon.home / "journal.sqlite", "SELECT max(seq) FROM events")[0][0]
    daemon.started()
    assert numbers(daemon) == [waiting] and daemon.submit("true") == waiting + 1
    assert daemon.events(since=seq)[0]["seq"] == seq + 1


def test_where_no_job_is_removed_no_event_is(daemon: Daemon) -> None:
    job = daemon.wait(daemon.submit("true"))["id"]
    daemon.terminate()
    first = sql(daemon.home / "journal.sqlite", "SELECT min(seq) FROM events")
    daemon.started()
    until(lambda: daemon.wait(daemon.submit("true"))["id"] > job + 2)  # by then it has looked
    assert sql(daemon.home / "journal.sqlite", "SELECT min(seq) FROM events") == first


def test_the_limits_are_those_of_the_file(daemon: Daemon, home: Path) -> None:
    jobs = [daemon.wait(daemon.submit("true"))["id"] for _ in range(4)]
    (home / "limits.toml").write_text('keep_for = "200d"\nkeep_jobs = 2\n')
    removed_when_old(daemon, *jobs)
    assert numbers(daemon) == jobs[2:]


def test_a_user_who_submits_and_cancels_without_end_takes_bounded_memory_and_disk(
    make_daemon: Make, home: Path
) -> None:
    """Young jobs and events go as soon as there are far too many, and do not wait for the hour."""
    daemon = make_daemon(limits="keep_jobs = 20\nkeep_events = 1000\n").hurry("hooks.retention.PAUSE_S").started()
    blocker = daemon.python(WAITS)
    many = {"jobs": [submission("true", after=[blocker])] * 50, "env": {}, "follows": []}
    for _ in range(14):
        for number in daemon.post("/v1/submissions", many)["ids"]:
            daemon.cancel(number)
    until(lambda: len(numbers(daemon)) <= 41)
    assert len(numbers(daemon)) >= 21, "as many as are to be kept, and the one that waits"
    assert sql(home / "journal.sqlite", "SELECT count(*) FROM jobs")[0][0] <= 41
    until(lambda: sql(home / "journal.sqlite", "SELECT count(*) FROM events WHERE ring = 0")[0][0] <= 1000 + 41 * 4)
    last = sql(home / "journal.sqlite", "SELECT max(seq) FROM events")[0][0]
    assert last > 2000, "far more has happened than is kept"
    assert daemon.show(blocker)["phase"] != "ended"
    daemon.restarted()
    assert blocker in numbers(daemon)
    assert daemon.cancelled(blocker)["outcome"] == "cancelled"


def test_users_who_may_not_know_of_jobs_do_not_hear_that_they_were_removed(daemon: Daemon, home: Path) -> None:
    mine, _other = (daemon.submit("true", ended=True) for _ in range(2))
    removed_when_old(daemon, mine)
    asked = f"attempt(lambda: daemon.show({mine}))"
    assert as_nobody(daemon, asked) == "removed_job"
    daemon.terminate()
    (home / "limits.toml").write_text('visibility = "own"\n')
    daemon.started()
    assert as_nobody(daemon, asked) == "unknown_job" and refusal(lambda: daemon.show(mine)).code == "removed_job"


def test_a_daemon_that_was_killed_between_two_steps_has_removed_all_of_a_job_or_goes_on(daemon: Daemon) -> None:
    """A directory that has been moved aside and not been deleted, of a job whose row is still there."""
    first, second = (daemon.submit("true", ended=True) for _ in range(2))
    daemon.terminate()
    make_old(daemon.home, first)
    (daemon.home / "removed").mkdir(exist_ok=True)
    (daemon.home / "jobs" / str(first)).rename(daemon.home / "removed" / str(first))
    daemon.started()
    until_removed(daemon)
    assert numbers(daemon) == [second]


def kept_events(path: Path) -> list[int]:
    return [seq for (seq,) in sql(path, "SELECT seq FROM events ORDER BY seq")]


async def test_what_says_how_a_job_was_submitted_stays_until_the_job_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    insert = "INSERT INTO events (seq, wall_us, now_us, kind, job, ring, data) VALUES (?, ?, 0, ?, ?, 0, '{}')"
    events = [(1, 1, "Submitted", 1), (2, 2, "GrantTurn", 1), (3, 3, "Submitted", 2), (4, 4, "Submitted", 3)]
    job = JobRecord(1, 1000, 1000, SubmitRequest(["python"], "/", {}), None, 1)
    with opened(path) as daemon:
        await daemon.journal.durable(insert, *events)
        await daemon.journal.durable(INSERT_JOB, job_row(job))
        assert await JournalRemoval(daemon.journal, path).events(before=9, most=99) == 2
    assert kept_events(path) == [1, 4]


async def test_of_too_many_events_the_oldest_go_and_frequent_kinds_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    insert = "INSERT INTO events (seq, wall_us, now_us, kind, ring, data) VALUES (?, 5, 0, 'Any', ?, '{}')"
    with opened(path) as daemon:
        await daemon.journal.durable(insert, *[(number, number % 2) for number in range(1, 41)])
        assert await JournalRemoval(daemon.journal, path).events(before=0, most=20) == 0
        assert await JournalRemoval(daemon.journal, path).events(before=0, most=5) == 15
    assert kept_events(path) == [*range(1, 32, 2), *range(32, 41)]


async def test_old_events_go_in_small_steps_and_the_last_one_stays(tmp_path: Path) -> None:
    folder = tmp_path / "50%? #1"
    folder.mkdir()
    path = folder / "journal.sqlite"
    insert = "INSERT INTO events (seq, wall_us, now_us, kind, ring, data) VALUES (?, ?, 0, 'Tick', 0, '{}')"
    with opened(path) as daemon:
        await daemon.journal.durable(insert, *[(number, number) for number in range(1, 1301)])
        removal = JournalRemoval(daemon.journal, path)
        assert await removal.events(before=1201, most=9999) == 1200
        assert await removal.events(before=1201, most=9999) == 0
        assert await removal.events(before=5000, most=9999) == 99
    assert kept_events(path) == [1300]


# Which ended jobs are removed


NOW = 1000 * DAY
PLENTY = Keeping(90 * DAY, 1000, 1 << 40)


def keeping(**fields: int) -> Keeping:
    return dataclasses.replace(PLENTY, **fields)


def ended(number: JobId, age_us: int, owner: int = 1000, outcome: Outcome = Outcome.SUCCEEDED) -> EndedJob:
    return EndedJob(number, owner, outcome, msgspec.Raw(b"{}"), NOW - age_us, NOW - age_us)


def gone(jobs: list[EndedJob], limits: Keeping, stay: tuple[JobId, ...] = ()) -> list[JobId]:
    return [job.id for job in removable(jobs, Needed(stay), limits, NOW)]


@pytest.mark.parametrize(
    ("jobs", "limits", "expected"),
    [
        ([ended(1, 91 * DAY), ended(2, 92 * DAY), ended(3, 90 * DAY)], PLENTY, [2, 1]),
        ([ended(number, (10 - number) * DAY) for number in range(1, 6)], keeping(jobs=3), [1, 2]),
        (
            [ended(1, 9 * DAY), *(ended(number, (10 - number) * DAY, owner=1001) for number in range(2, 7))],
            keeping(jobs=3),
            [2, 3],
        ),
        ([ended(1, YOUNG + 1), ended(2, YOUNG), ended(3, 0), ended(4, 0)], keeping(jobs=2), [1]),
    ],
    ids=["too old, the oldest first", "too many", "too many of another user", "just ended: whatever the limits say"],
)
def test_which_jobs_go(jobs: list[EndedJob], limits: Keeping, expected: list[JobId]) -> None:
    assert gone(jobs, limits) == expected


def test_young_jobs_of_a_user_who_has_far_too_many_go_too() -> None:
    jobs = [ended(number, JUST_ENDED + 8 - number) for number in range(1, 8)]
    assert gone(jobs[1:], keeping(jobs=3)) == [], "six are twice as many, and can wait for the hour"
    assert gone(jobs, keeping(jobs=3)) == [1, 2, 3, 4]
    assert gone([*jobs[1:], ended(8, JUST_ENDED, owner=1001)], keeping(jobs=3)) == []
    assert gone([ended(number, JUST_ENDED) for number in range(1, 8)], keeping(jobs=3)) == [], "in this moment"


def test_young_jobs_that_take_far_too_much_memory_go_too() -> None:
    long = msgspec.Raw(b'"' + b"x" * 2 * LONG_ROW + b'"')
    jobs = [dataclasses.replace(ended(number, JUST_ENDED + 8 - number), info=long) for number in range(1, 8)]
    assert jobs[0].weight == 3
    assert gone(jobs, keeping(jobs=11)) == []
    assert gone(jobs, keeping(jobs=10)) == [1, 2, 3, 4]


def test_of_far_too_many_only_those_stay_that_others_still_wait_for() -> None:
    jobs = [
        ended(number, YOUNG, outcome=Outcome.FAILED if number == 2 else Outcome.SUCCEEDED) for number in range(1, 8)
    ]
    assert gone(jobs, keeping(jobs=1), stay=(1, 2)) == [1, 3, 4, 5, 6]


def test_jobs_that_others_wait_for_and_the_newest_number_stay() -> None:
    waiting = SubmitRequest(["python"], "/", {}, after=[4, 6], after_any=[5, 7])
    assert awaited([waiting], [4, 5, 8, 9]) == {4, 5} and awaited([], [4]) == set()
    assert not removable([ended(8, 91 * DAY)], Needed((), 8), PLENTY, NOW)
    assert gone([ended(4, 91 * DAY), ended(5, 91 * DAY)], PLENTY, stay=(4,)) == [5]
