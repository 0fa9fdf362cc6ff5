"""Durations are those of the monotonic clock, whatever becomes of the wall clock, and over a restart of the daemon."""

from __future__ import annotations

import asyncio
import sqlite3
import time

import msgspec
import pytest

from carpool.core.model import Attempt, Outcome, Usage
from carpool.daemon.jobs import table
from carpool.daemon.jobs.control import AloneTime, used_us
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import Ended, JobRecord, JobTable
from carpool.daemon.journal.contents import read_jobs
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.journal.restart_record import BOOT_ID, BootRecord, MomentRecord, read_wall_ahead
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import WallSteps
from carpool.protocol.api import SubmitRequest
from tests.daemon.daemon_harness import Daemon

SECOND = 1_000_000
DAY = 86_400 * SECOND
NOON = 20_000 * DAY
STEPS = pytest.mark.parametrize("step", [400 * DAY, -3 * DAY, -13_000 * DAY])


class Clock:
    """The wall clock of the table's; ``forward`` and ``set`` move it with and without the monotonic one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.ahead = NOON, 0
        self.steps = WallSteps(read=lambda: self.ahead)
        monkeypatch.setattr(table, "wall_us", lambda: self.wall)

    def forward(self, us: int) -> None:
        self.wall += us

    def set(self, step: int) -> None:
        self.wall += step
        self.ahead += step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def running(jobs: JobTable, clock: Clock) -> JobRecord:
    """It waited for a second, ran for one in vain, and has run for four, paused for the last of them."""
    job = JobRecord(1, 1000, 1000, SubmitRequest(["true"], "/", {}), None, jobs.now_us())
    past = Ended(Attempt("no", "host0"), job.submitted_us + SECOND, job.submitted_us + 2 * SECOND)
    job.past, job.started_us = (past,), past.ended_us + SECOND
    job.alone = AloneTime(job.started_us)
    job.control = msgspec.structs.replace(job.control, paused_by=7, paused_since_us=job.started_us + 3 * SECOND)
    clock.forward(7 * SECOND)
    jobs.live[1] = job
    return job


@STEPS
def test_what_has_happened_is_as_long_ago_as_it_was(clock: Clock, step: int) -> None:
    jobs = JobTable(clock.steps)
    job = running(jobs, clock)
    clock.set(step)
    now = jobs.now_us()
    assert now == clock.wall and job.started_us is not None and job.past[0].started_us is not None
    assert now - job.submitted_us == 7 * SECOND and now - job.started_us == 4 * SECOND
    assert job.past[0].ended_us - job.past[0].started_us == SECOND
    assert job.control.paused_in_all_us(now) == SECOND
    assert job.alone.until(now, 0) == used_us(job, now) == 4 * SECOND


@STEPS
async def test_the_journal_has_it_too(clock: Clock, connection: sqlite3.Connection, step: int) -> None:
    journal = Journal(connection, asyncio.get_running_loop())
    store, jobs = JournalStore(journal, {}), JobTable(clock.steps, MomentRecord(journal).write)
    job = running(jobs, clock)
    await store.submitted([job])
    await store.failed(job)
    store.started(job)
    clock.set(step)
    jobs.now_us()
    await journal.flushed()
    (found,) = read_jobs(connection)
    assert (found.submitted_us, found.started_us, found.past) == (job.submitted_us, job.started_us, job.past)
    assert (found.control, found.alone) == (job.control, job.alone)
    assert read_wall_ahead(connection) == step
    job.usage, job.outcome = Usage(), Outcome.SUCCEEDED
    clock.forward(SECOND)
    job.ended_us = jobs.now_us()
    store.ended(job)
    await journal.flushed()
    (ended,) = read_jobs(connection)
    info = job_info(ended, None)
    assert info.ended_us is not None and info.started_us is not None and info.ended_us - info.started_us == 5 * SECOND
    journal.close()


async def test_the_distance_of_the_clocks_is_that_of_one_start_of_the_machine(connection: sqlite3.Connection) -> None:
    journal = Journal(connection, asyncio.get_running_loop())
    assert read_wall_ahead(connection) is None
    BootRecord(journal, "this boot", restarted=False).settled(-5)
    await journal.flushed()
    known = dict(connection.execute("SELECT key, value FROM meta WHERE key IN (?, 'wall_ahead_us')", (BOOT_ID,)))
    assert known == {BOOT_ID: "this boot", "wall_ahead_us": "-5"} and read_wall_ahead(connection) == -5
    connection.execute("UPDATE meta SET value = 'x' WHERE key = 'wall_ahead_us'")
    assert read_wall_ahead(connection) is None
    journal.close()


def test_a_clock_that_is_set_while_no_daemon_runs(daemon: Daemon) -> None:
    """The second daemon lives in 1970: its clock counts from the start of the machine."""
    job = daemon.python("import signal; print('here', flush=True); signal.pause()", line="here")
    before = daemon.show(job)
    daemon.kill()
    daemon.hurry("system.clock.WALL_CLOCK", to=time.CLOCK_BOOTTIME).started()
    after, step = daemon.show(job), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - time.time_ns() // 1000
    for moment in ("submitted_us", "started_us"):
        assert abs(after[moment] - before[moment] - step) < SECOND, moment
    ended = daemon.cancelled(job)
    assert 0 < ended["ended_us"] - ended["started_us"] == ended["ended_us"] - after["started_us"]
    assert daemon.get("/v1/usage")["days"][0]["day"].startswith("1970-")
