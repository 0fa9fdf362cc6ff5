"""A process that has joined Carpool through another job's attach socket, and what becomes of it when that job ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.api import SubmitRequest
from carpool.runtime.launch import job_environment
from tests.live import NEVER_US, PATIENCE_S, Running

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Workload


class Guests:
    """Processes that have joined jobs of a daemon from elsewhere."""

    def __init__(self, environment: dict[str, str], out: Path) -> None:
        self._environment, self._out = environment, out
        self._processes: list[subprocess.Popen[str]] = []

    def of_idle_job(self, daemon: Daemon, script: str) -> tuple[Running, subprocess.Popen[str]]:
        """A job that does nothing, and a process that attaches through its door."""
        submission = SubmitRequest(argv=["sleep", "600"], cwd=str(daemon.home), env=self._environment)
        job = Running(daemon, daemon.client.submit(submission), self._out)
        until_event(daemon, "ProcessStarted", job)
        about = {"home": str(daemon.home), "job": job.id, "job_fd": 0, "threads": 1}
        env = job_environment(self._environment, **about) | {"CARPOOL_JOB_PID": "1"}  # type: ignore[arg-type]
        guest = subprocess.Popen([sys.executable, "-c", script], env=env, stderr=subprocess.PIPE, text=True)
        self._processes.append(guest)
        return job, guest

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def guests(jobs_environment: dict[str, str], stand_in: dict[str, str], tmp_path: Path) -> Iterator[Guests]:
    made = Guests(jobs_environment | stand_in, tmp_path / "out")
    yield made
    made.end()


def until_event(daemon: Daemon, kind: str, job: Running) -> None:
    with closing(daemon.client.events(follow=True)) as events:
        assert any(event.kind == kind and event.job == job.id for event in events)


def test_it_does_not_wait_for_ever(daemons: Daemons, guests: Guests) -> None:
    daemon = daemons(policy="fifo", grace_us=NEVER_US)
    holder = daemon.submit_taking("import signal, torch; torch.ones(100000); signal.pause()")
    until_event(daemon, "GrantTurn", holder)
    job, guest = guests.of_idle_job(daemon, "import torch; torch.ones(100000)")
    until_event(daemon, "TurnWanted", job)
    daemon.client.cancel(job.id)
    _, errors = guest.communicate(timeout=PATIENCE_S)
    assert "the job has ended through whose channel this process has joined" in errors
    assert guest.returncode == -signal.SIGABRT
    assert holder.info().phase == "running"


def test_it_does_not_compute_in_memory_that_others_get(
    bare: Bare, daemons: Daemons, workload: type[Workload], guests: Guests
) -> None:
    daemon = daemons()
    job, guest = guests.of_idle_job(daemon, "import torch\nwhile True: torch.ones(100000)")
    until_event(daemon, "GrantTurn", job)
    daemon.client.cancel(job.id)  # nobody else wants the turn, so it still has it
    assert job.wait().outcome == "cancelled"
    assert guest.poll() == -signal.SIGKILL
    assert [daemon.submit(workload("adam")).result()] == bare([workload("adam")])
