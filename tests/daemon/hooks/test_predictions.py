"""When the daemon checks the simulator's predictions, and what becomes of a check that fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carpool.daemon.hooks import predictions as module
from carpool.daemon.hooks.predictions import EVERY_US, PredictionChecks
from carpool.daemon.system.clock import wall_us
from carpool.protocol.paths import Home
from carpool.protocol.predictions import FEWEST_JOBS, read_checks
from tests.daemon.daemon_harness import Make, until

HOUR_US = 3_600_000_000


def hook(home: Path, *ended_us: int) -> PredictionChecks:
    ended: dict[int, Any] = {number: SimpleNamespace(ended_us=us) for number, us in enumerate(ended_us)}
    return PredictionChecks(Home(home), SimpleNamespace(ended=ended), enabled=True)  # type: ignore[arg-type]


def test_a_check_is_due_when_enough_jobs_have_ended_since_the_last(tmp_path: Path) -> None:
    now = 100 * EVERY_US
    assert not hook(tmp_path, *[now] * (FEWEST_JOBS - 1)).due(now)
    assert hook(tmp_path, *[now] * FEWEST_JOBS).due(now)
    path = Home(tmp_path).predictions
    path.touch()
    os.utime(path, ns=(0, (now - EVERY_US) * 1000))
    assert hook(tmp_path, *[now] * FEWEST_JOBS).due(now)
    assert not hook(tmp_path, *[now] * FEWEST_JOBS).due(now - 1), "a day has not passed"
    assert not hook(tmp_path, *[now - EVERY_US] * FEWEST_JOBS).due(now), "these were in the last one"


def test_one_can_do_without(tmp_path: Path) -> None:
    assert not PredictionChecks(Home(tmp_path), None, enabled=False).work()  # type: ignore[arg-type]


async def test_a_failure_is_logged_once_and_tried_again_the_next_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, "print('first', file=sys.stderr); sys.exit('the second line')")
    made = hook(tmp_path, *[wall_us() + 2 * EVERY_US] * FEWEST_JOBS)
    for _ in range(2):
        await made.check()
    assert [record.getMessage() for record in caplog.records] == [
        "the simulator's predictions could not be checked: the second line"
    ]
    assert not made.due(wall_us() + HOUR_US) and made.due(wall_us() + EVERY_US + HOUR_US)


async def test_a_process_that_takes_too_long_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, "import signal; signal.pause()")
    monkeypatch.setattr(module, "LIMIT_S", 0.01)
    await hook(tmp_path).check()
    assert "it takes longer than 0 s" in caplog.text


async def test_a_process_ends_with_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = program(monkeypatch, "import signal; signal.pause()")
    task = asyncio.create_task(hook(tmp_path).check())
    await asyncio.sleep(0)  # the task goes on until it waits for the process
    assert os.getpriority(os.PRIO_PROCESS, started[0].pid) == module.NICE
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert started[0].returncode == -9


def program(monkeypatch: pytest.MonkeyPatch, code: str) -> list[subprocess.Popen[bytes]]:
    """Another program takes the place of `carpool simulate`; the answer lists its processes."""
    real, started = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def start(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        assert "--check" in command
        started.append(real([sys.executable, "-ISc", f"import sys; {code}"], **how))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def test_a_daemon_checks_its_own_jobs(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:64MiB").hurry("hooks.predictions.INTERVAL_S").started()
    jobs = [daemon.fake("attach", "rounds:3") for _ in range(FEWEST_JOBS)]
    for job in jobs:
        daemon.wait(job)
    path = Home(daemon.home).predictions
    until(path.exists, 120)
    (check,) = read_checks(path)
    assert (check.jobs, check.policy) == (FEWEST_JOBS, "fair")
    assert "predictions could not be checked" not in daemon.log()
