"""Device time that the rows of jobs and attempts do not say survives the daemon, and goes with its job."""

from __future__ import annotations

from pathlib import Path

from carpool.core.events import TraitsSeen
from carpool.core.model import Attempt, Outcome, Usage
from carpool.daemon.jobs.control import NEVER_ALONE, used_us
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.contents import read_jobs
from carpool.daemon.journal.events import JournalRemoval
from carpool.daemon.journal.records import AloneTimes
from carpool.daemon.system.clock import wall_us
from carpool.protocol.api import SubmitRequest
from tests.daemon.journal_file import opened, sql

SECOND = 1_000_000


def job(number: int = 1, started_us: int = 10 * SECOND) -> JobRecord:
    made = JobRecord(number, 1000, 1000, SubmitRequest(["true"], "/", {}), None, 0, started_us=started_us)
    made.device, made.usage = "host0", Usage(device_us=3 * SECOND)
    return made


def kept_times(path: Path) -> list[tuple[str]]:
    return sql(path, "SELECT key FROM meta WHERE key LIKE 'device_time:%'")


async def test_attempts_that_came_to_nothing(path: Path) -> None:
    with opened(path) as daemon:
        first = job(started_us=wall_us() - 9 * SECOND)
        await daemon.store.submitted([first])
        again = first.again(Attempt("it failed", "host0"), None, 1, None)
        await daemon.store.failed(again)
        again.started_us, again.usage = 50 * SECOND, Usage(device_us=2 * SECOND)
        again.outcome, again.ended_us = Outcome.SUCCEEDED, 60 * SECOND
        daemon.store.ended(again)
        await daemon.journal.flushed()
        (found,) = read_jobs(daemon.connection)
        assert [ended.device_us for ended in found.past] == [3 * SECOND]
        assert used_us(found, wall_us()) == used_us(again, wall_us()) == 5 * SECOND
        assert kept_times(path)
        await JournalRemoval(daemon.journal, path).jobs([1])
    assert not kept_times(path)


async def test_a_job_that_turns_out_to_be_exclusive(path: Path) -> None:
    jobs, found = JobTable(), job(started_us=wall_us() - 9 * SECOND)
    with opened(path) as daemon:
        times = AloneTimes(jobs, daemon.journal)
        await daemon.store.submitted([found])
        jobs.live[1] = found
        times.happened(0, TraitsSeen(1, alone="its processes communicate by NCCL"))
        await daemon.journal.flushed()
        (known,) = read_jobs(daemon.connection)
        assert known.alone == found.alone != NEVER_ALONE
        jobs.live[1] = known
        times.settle()
        assert known.alone.since_us is None, "of which nobody has said it again after a restart"


async def test_of_usual_jobs_nothing_is_kept(path: Path) -> None:
    usual = job()
    usual.outcome, usual.ended_us = Outcome.SUCCEEDED, 20 * SECOND
    with opened(path) as daemon:
        daemon.store.ended(usual)
    assert not kept_times(path)
