"""Shims that their users have stopped: before they have told of a job's start.  `tests/adversary` stops them later."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from carpool.core.events import ProcessExited, StartFailed
from carpool.core.model import JobId, JobPhase
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.jobs.watchlist import Recovery
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.shims import forced_ends
from carpool.daemon.shims.endings import Ending, ended_by_driver
from carpool.daemon.shims.forced_ends import ForcedEnds
from carpool.daemon.shims.orphans import Orphans
from carpool.daemon.shims.shim_table import ShimTable
from carpool.daemon.shims.supervisor import Processes
from carpool.protocol.api import SubmitRequest
from carpool.protocol.paths import Home
from carpool.protocol.session import Register


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


@pytest.mark.parametrize(("phase", "starts"), [(JobPhase.RUNNING, True), (JobPhase.STARTING, False)])
def test_a_job_that_counts_as_running_because_its_shim_was_late_is_started(phase: JobPhase, starts: bool) -> None:
    """During a restart the shim did not answer; it had not been told to start the job."""
    parts, nobody = MagicMock(recovery=Recovery(), table=ShimTable()), MagicMock()
    parts.channels.open.return_value = ""
    job = JobRecord(1, os.getuid(), os.getgid(), SubmitRequest(["true"], "/", {}), None, 0, phase=phase, device="host0")
    parts.jobs.live = {1: job}
    processes = Processes(parts, nobody, nobody, nobody, nobody, nobody)
    processes.registered(MagicMock(pid=7), Register(1, 7), [])
    assert parts.hooks.starting.called == starts
    processes.registered(MagicMock(pid=7), Register(1, 7, child_pid=8), [])
    processes.registered(MagicMock(pid=7), Register(1, 7, child_pid=8), [])
    assert parts.hooks.starting.call_count == starts and parts.hooks.started.call_count == 1


# What follows from how a job has ended


CRASHED = ProcessExited(1, None, 11)


@pytest.mark.parametrize(
    ("event", "facts", "blamed"),
    [
        (CRASHED, {}, True),
        (ProcessExited(1, 1), {}, True),  # what has died was a child
        (ProcessExited(1, 0), {}, False),
        (StartFailed(1, "no"), {}, False),
        (CRASHED, {"suspending": False}, False),
        (CRASHED, {"phase": JobPhase.STOPPING}, False),  # cancelled, or requeued by its user
        (CRASHED, {"startable": False}, False),
    ],
)
def test_a_job_that_fails_while_it_is_suspended_was_ended_by_the_driver(
    event: Ending, facts: dict[str, object], blamed: bool
) -> None:
    job = JobRecord(1, 1000, 1000, SubmitRequest(["true"], "/", {}), None, 0, phase=JobPhase.RUNNING, suspending=True)
    for name, value in facts.items():
        setattr(job, name, value)
    assert ended_by_driver(event, job) is blamed


# Which processes count as alive, and when `end` returns


WITHOUT_ITS_MAIN_THREAD = """
import ctypes, threading
def rest():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        pass
    print("rests", flush=True)
    threading.Event().wait()
threading.Thread(target=rest).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_ITS_MAIN_THREAD]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"rests\n"
        orphans = Orphans(DirectPrivileges(Home(tmp_path)), Home(tmp_path), JobId(1), os.getuid(), holder=process.pid)
        assert orphans.pids() == [process.pid]
        orphans.end()
        assert process.poll() == -signal.SIGKILL
        assert orphans.pids() == []
