"""Processes with PyTorch's CUDA build that nobody has submitted join, and take turns with a job that was submitted."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.core.model import MIB
from carpool.protocol.environment import token
from carpool.protocol.session import JoinOptions
from carpool.runtime.launch import joining_variables
from tests import emulated
from tests.cuda.pytorch.rig import CudaScript, differing, right
from tests.cuda.rig import Daemon, Daemons, stub_uuid
from tests.devices.cuda_stub import Stub
from tests.live import PATIENCE_S
from tests.tiers import RARER_WAY

STAYS = "tests/e2e/test_joining.py::test_a_process_is_a_job_beside_a_submitted_one"
KNOWN = {"persistent_bytes": 48 * MIB, "ephemeral_bytes": 48 * MIB}


class Joiners:
    """Processes with the variables that `carpool env` prints for the GPU."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self._environment, self._directory = environment, directory
        self.started: list[subprocess.Popen[str]] = []

    def start(self, daemon: Daemon, script: str) -> Path:
        """The file for its results; it begins when the daemon's meeting does."""
        out = self._directory / f"joined{len(self.started)}"
        options = msgspec.json.encode(JoinOptions(name=out.name, device="cuda0", **KNOWN)).decode()
        about = {"socket": str(daemon.home / "session.sock"), "options": options, "token": token(daemon.home)}
        joining = joining_variables(self._environment, **about, threads=1, cuda_device=stub_uuid(0))
        env = self._environment | joining | {"MEETING_POINT": str(daemon.meeting.path)}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.started.append(subprocess.Popen(CudaScript.named(script).command(out), env=env, text=True, **pipes))
        return out

    def result(self, out: Path) -> dict[str, Any]:
        process = self.started[int(out.name.removeprefix("joined"))]
        errors = process.communicate(timeout=PATIENCE_S)[1]
        assert process.returncode == 0, errors
        assert "carpool: " not in errors
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def joiners(stub: Stub, tmp_path: Path) -> Iterator[Joiners]:
    made = Joiners(emulated.clean() | stub.environment(), tmp_path)
    yield made
    made.end()


def computing(daemon: Daemon, name: str) -> int:
    """The job of that name, once it has come to some iterations."""

    def found() -> list[int]:
        return [job.id for job in daemon.client.jobs() if job.name == name and job.iterations > 5]

    daemon.until(lambda: bool(found()))
    return found()[0]


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_contents_beside_a_submitted_job_over_a_kill_of_the_daemon(daemons: Daemons, joiners: Joiners) -> None:
    daemon = daemons()
    submitted = daemon.submit("integrity 1 150 8", meet=True, **KNOWN)
    joined = joiners.start(daemon, "integrity 2 150 8")
    daemon.meeting.begin(2)
    job = computing(daemon, joined.name)
    daemon.kill()
    daemon.start()
    assert [differing(each, right("")) for each in (joiners.result(joined), submitted.result())] == [[], []]
    info = daemon.client.wait(job, PATIENCE_S)
    assert (info.outcome, info.joined, info.device) == ("succeeded", True, "cuda0")
    assert info.switches > 0


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_one_that_is_killed_in_its_turn_leaves_nothing(daemons: Daemons, joiners: Joiners) -> None:
    daemon = daemons()
    submitted = daemon.submit("integrity 1 60 8", meet=True, **KNOWN)
    joined = joiners.start(daemon, "integrity 2 1000 8")
    daemon.meeting.begin(2)
    job = computing(daemon, joined.name)
    joiners.started[0].kill()
    assert differing(submitted.result(), right("")) == []
    info = daemon.client.wait(job, PATIENCE_S)
    assert (info.outcome, info.signal) == ("failed", signal.SIGKILL)
