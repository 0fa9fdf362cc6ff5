"""Reports of requests to the daemon: in order, once, again while it lasts, and after the daemon was away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from carpool.protocol.api import ErrorInfo
from carpool.protocol.unix_http import ApiError, ClientError
from carpool.serve.engines.turns import EngineTurns
from tests.serve.fakes import until


class Heard:
    """A daemon's ear; ``failures``: of the next reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, bool]] = []
        self.failures: list[ClientError] = []

    def __call__(self, job: int, busy: bool) -> None:
        if self.failures:
            raise self.failures.pop()
        self.reports.append((job, busy))


@asynccontextmanager
async def watched(heard: Heard, repeat_s: float = 60.0) -> AsyncIterator[EngineTurns]:
    turns = EngineTurns(heard, linger_s=0)
    task = asyncio.create_task(turns.watch(repeat_s))
    yield turns
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    turns.close()


async def test_changes_are_reported_once() -> None:
    heard = Heard()
    async with watched(heard) as turns:
        turns.set(1, False)  # as everyone takes for granted
        for _ in range(3):
            turns.set(1, True)
        await until(lambda: heard.reports == [(1, True)])
        turns.set(2, True)
        turns.set(1, False)
        await until(
            lambda: heard.reports[1:] == [(1, False), (2, True)] or heard.reports[1:] == [(2, True), (1, False)]
        )
        turns.forget(2)
        turns.set(2, True)
        await until(lambda: heard.reports[3:] == [(2, True)])


async def test_a_report_is_repeated_while_others_come() -> None:
    heard = Heard()
    async with watched(heard, repeat_s=0.1) as turns:
        turns.set(1, True)
        busy = False
        while heard.reports.count((1, True)) < 3:
            turns.set(2, busy := not busy)
            await asyncio.sleep(0)


async def test_a_daemon_that_was_away_hears_it_later() -> None:
    heard = Heard()
    heard.failures = [ClientError("away", "the daemon is away")]
    async with watched(heard, repeat_s=0.1) as turns:
        turns.set(1, True)
        await until(lambda: heard.reports and heard.reports[0] == (1, True))


async def test_a_job_that_has_ended_is_reported_once() -> None:
    heard = Heard()
    heard.failures = [ApiError(409, ErrorInfo("ended", "job 1 has ended"))]
    async with watched(heard) as turns:
        turns.set(1, True)
        await until(lambda: not heard.failures)
        turns.set(2, True)
        await until(lambda: heard.reports == [(2, True)])
