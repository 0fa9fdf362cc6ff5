"""Device time that the rows of jobs and attempts do not say survives the daemon, and goes with its job."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from carpool.core.events import TraitsSeen
from carpool.core.model import Attempt, Outcome, Usage
from carpool.daemon.jobs.control import NEVER_ALONE, used_us
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.contents import read_jobs
from carpool.daemon.journal.events import JournalRemoval
from carpool.daemon.journal.records import AloneTimes, JournalStore
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import wall_us
from carpool.protocol.api import SubmitRequest

SECOND = 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_journal(path)) as opened:
        yield opened


def job(number: int = 1, started_us: int = 10 * SECOND) -> JobRecord:
    made = JobRecord(number, 1000, 1000, SubmitRequest(["true"], "/", {}), None, 0, started_us=started_us)
    made.device, made.usage = "host0", Usage(device_us=3 * SECOND)
    return made


async def test_attempts_that_came_to_nothing(connection: sqlite3.Connection, path: Path) -> None:
    journal = Journal(connection, asyncio.get_running_loop())
    store = JournalStore(journal, {})
    first = job(started_us=wall_us() - 9 * SECOND)
    await store.submitted([first])
    again = first.again(Attempt("it failed", "host0"), None, 1, None)
    await store.failed(again)
    again.started_us, again.usage = 50 * SECOND, Usage(device_us=2 * SECOND)
    again.outcome, again.ended_us = Outcome.SUCCEEDED, 60 * SECOND
    store.ended(again)
    await journal.flushed()
    (found,) = read_jobs(connection)
    assert [ended.device_us for ended in found.past] == [3 * SECOND]
    assert used_us(found, wall_us()) == used_us(again, wall_us()) == 5 * SECOND
    await JournalRemoval(journal, path).jobs([1])
    assert connection.execute("SELECT count(*) FROM meta WHERE key LIKE 'device_time:%'").fetchone() == (0,)
    journal.close()


async def test_a_job_that_turns_out_to_be_exclusive(connection: sqlite3.Connection) -> None:
    journal, jobs = Journal(connection, asyncio.get_running_loop()), JobTable()
    times, found = AloneTimes(jobs, journal), job(started_us=wall_us() - 9 * SECOND)
    await JournalStore(journal, {}).submitted([found])
    jobs.live[1] = found
    times.happened(0, TraitsSeen(1, alone="its processes communicate by NCCL"))
    await journal.flushed()
    (known,) = read_jobs(connection)
    assert known.alone == found.alone != NEVER_ALONE
    jobs.live[1] = known
    times.settle()
    assert known.alone.since_us is None, "of which nobody has said it again after a restart"
    journal.close()


async def test_of_usual_jobs_nothing_is_kept(connection: sqlite3.Connection) -> None:
    journal, usual = Journal(connection, asyncio.get_running_loop()), job()
    usual.outcome, usual.ended_us = Outcome.SUCCEEDED, 20 * SECOND
    JournalStore(journal, {}).ended(usual)
    await journal.flushed()
    assert connection.execute("SELECT count(*) FROM meta WHERE key LIKE 'device_time:%'").fetchone() == (0,)
    journal.close()
