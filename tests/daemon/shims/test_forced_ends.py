"""Shims that their users have stopped: before they have told of a job's start.  `tests/adversary` stops them later."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.shims import forced_ends
from carpool.daemon.shims.forced_ends import ForcedEnds
from carpool.daemon.shims.shim_table import ShimTable
from carpool.protocol.api import SubmitRequest
from carpool.protocol.paths import Home


def made(table: ShimTable, links: object = None) -> ForcedEnds:
    nobody: Any = None
    parts: Any = SimpleNamespace(home=Home(Path("/nonexistent")), privileges=nobody, links=links, table=table)
    return ForcedEnds(parts, nobody)


async def test_a_shim_that_is_stopped_before_the_start_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forced_ends, "START_PATIENCE_S", 0.0)
    table, ended = ShimTable(), asyncio.Event()
    job = JobRecord(1, os.getuid(), os.getgid(), SubmitRequest(["true"], "/", {}), None, 0)
    with subprocess.Popen(["sleep", "600"]) as shim:  # noqa: ASYNC220 - it takes no time
        ends = made(table, links=SimpleNamespace(pid=lambda _job: shim.pid))
        ends.await_start(job, ended.set)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not ended.is_set(), "it may just take its time"
        shim.send_signal(signal.SIGSTOP)
        await asyncio.wait_for(ended.wait(), 20)
        shim.kill()


async def test_of_a_job_that_runs_nothing_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forced_ends, "START_PATIENCE_S", 0.0)
    table = ShimTable()
    job = JobRecord(1, os.getuid(), os.getgid(), SubmitRequest(["true"], "/", {}), None, 0)
    ends = made(table)
    table.of(1).started = True
    ends.await_start(job, lambda: pytest.fail("it has started"))
    for _ in range(5):
        await asyncio.sleep(0)
