"""A process that has joined Carpool through another job's attach socket, and what becomes of it when that job ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.api import SubmitRequest
from carpool.runtime.launch import job_environment
from tests.live import PATIENCE_S, Running

if TYPE_CHECKING:
    from conftest import Daemon, Daemons, Workload


@pytest.fixture
def joined() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that a test has started; none outlives it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def idle_job(daemon: Daemon, environment: dict[str, str]) -> Running:
    submission = SubmitRequest(argv=["sleep", "600"], cwd=str(daemon.home), env=environment)
    return Running(daemon, daemon.client.submit(submission), daemon.home / "none")


def until_event(daemon: Daemon, kind: str, job: Running) -> None:
    with closing(daemon.client.events(follow=True)) as events:
        assert any(event.kind == kind and event.job == job.id for event in events)


def test_it_does_not_wait_for_ever(
    daemons: Daemons,
    workload: type[Workload],
    jobs_environment: dict[str, str],
    joined: list[subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    daemon, release = daemons(policy="fifo"), tmp_path / "release"
    holder = daemon.submit(workload("holder", (str(release),)))
    until_event(daemon, "GrantTurn", holder)
    job = idle_job(daemon, jobs_environment)
    until_event(daemon, "ProcessStarted", job)
    env = job_environment(jobs_environment, home=str(daemon.home), job=job.id, job_fd=0, threads=1)
    command = workload("adam").command(tmp_path / "out")
    joined.append(subprocess.Popen(command, env=env | {"CARPOOL_JOB_PID": "1"}, stderr=subprocess.PIPE, text=True))
    until_event(daemon, "TurnWanted", job)
    daemon.client.cancel(job.id)
    _, errors = joined[0].communicate(timeout=PATIENCE_S)
    assert "the job has ended through whose channel this process has joined" in errors
    assert joined[0].returncode == -signal.SIGABRT
    release.touch()
    holder.result()
