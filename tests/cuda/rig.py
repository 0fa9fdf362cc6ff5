"""Real daemons whose device is the stub GPU, real jobs on it, and the same programs without Carpool."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from carpool.protocol.api import EventInfo, JobInfo
from carpool.protocol.setting_text import setting_text
from tests import libraries
from tests.devices.cuda_stub import Stub
from tests.live import PATIENCE_S, BareRuns, LiveDaemon, Running, Script

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


def stub_uuid(index: int, kind: str = "GPU") -> str:
    """Of a device of the stub driver."""
    return f"{kind}-{uuid.UUID(bytes=b'carpool-stub-gp%d' % index)}"


STUB_UUID = stub_uuid(0)
#: A turn may change hands at every iteration, whatever a switch or a move costs, and all jobs belong to one lane.
EAGER = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "max_move_share_ppm": 1_000_000, "max_lanes": 1}


class Program(Script):
    DIRECTORY = PROGRAMS


class Bare(BareRuns):
    """On a stub GPU of their own."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        stub = {"EMULATOR_STATE": str(directory / "state"), "EMULATOR_DEVICES": "1GiB"}
        super().__init__(environment | stub, directory)

    def digest(self, program: Program) -> Any:
        return self.result(program)["digest"]


class Daemon(LiveDaemon):
    BEFORE: ClassVar[Sequence[str]] = (sys.executable, "-P", str(HERE / "soon_idle.py"))
    PROGRAM: ClassVar[type[Script]] = Program
    stub: Stub

    def __init__(self, home: Path, environment: dict[str, str], devices: Sequence[str], options: Sequence[str]) -> None:
        settings = [f"--set={setting_text(name, value)}" for name, value in EAGER.items()]
        options = [*(f"--device={device}" for device in devices), *settings, "--threads=1", *options]
        super().__init__(home, options, environment, environment)

    def submit(self, program: str, *, meet: bool = False, **request: Any) -> Running:
        return self.submit_script(self.PROGRAM.named(program), meet=meet, **request)

    def until_under_way(self, job: Running) -> None:
        """Wait until it has computed a few iterations."""
        for line in self.client.logs(job.id, follow=True):
            if b"under way" in line:
                return
        raise AssertionError(f"job {job.id} ended before it was under way:\n{job.log()}\n{self.story()}")

    def agents(self) -> list[int]:
        """Processes that have the daemon's contexts on the GPUs."""
        return [pid for pid in children(self._process.pid) if b"carpool.devices.cuda.agent" in command_of(pid)]

    def kill_agent(self) -> None:
        agents = self.agents()
        assert agents, self.story()
        for pid in agents:
            os.kill(pid, signal.SIGKILL)

    def events_since(self, job: Running) -> list[EventInfo]:
        """Those from the submission of the job on."""
        events = list(self.client.events())
        begin = next(k for k, event in enumerate(events) if event.kind == "Submitted" and event.job == job.id)
        return events[begin:]

    def end_all(self) -> None:
        """Whatever jobs a test has left."""
        left = [job.id for job in self.client.jobs() if job.phase != "ended"]
        for job in left:
            self.client.cancel(job)
        for job in left:
            assert self.client.wait(job, PATIENCE_S).phase == "ended", self.story()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the daemon tells only who asks."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.02)


class Daemons:
    """Starts daemons and stops them all in the end; none of them may have made a mistake."""

    def __init__(self, stub: Stub, environment: Mapping[str, str], kind: type[Daemon] = Daemon) -> None:
        """``environment``: of daemons and jobs, besides what tells them of the stub GPU."""
        self._stub, self._environment, self._kind = stub, environment, kind
        self._root = Path(tempfile.mkdtemp(prefix="carpool-"))  # short: paths of sockets are limited to 107 bytes
        self._running: list[Daemon] = []

    def __call__(self, *devices: str, options: Sequence[str] = ()) -> Daemon:
        home = self._root / f"d{len(self._running)}"
        environment = {**self._environment, **self._stub.environment()}
        made = self._kind(home, environment, devices or ("cuda:0",), options)
        made.stub = self._stub
        self._running.append(made)
        return made

    def close(self) -> None:
        logs = []
        for daemon in self._running:
            daemon.close()
            logs.append((daemon.home / "daemon.log").read_text())
        shutil.rmtree(self._root)
        for log in logs:
            assert "Traceback" not in log, log


def children(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            found += map(int, file.read_text().split())
    return found


def command_of(pid: int) -> bytes:
    """Empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def clean_environment() -> dict[str, str]:
    """What every program gets, in a job or not."""
    other = ("CARPOOL_", "PYTEST_", "CUDA_")
    ours = {k: value for k, value in os.environ.items() if k == "CARPOOL_TEST_RUN" or not k.startswith(other)}
    return (
        ours
        | {f"STAND_IN_{name}": str(libraries.stand_ins() / file) for name, file in libraries.STAND_INS.items()}
        | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    )


@dataclass(frozen=True)
class Ended:
    """A job that has ended well, with the result that it has without Carpool."""

    info: JobInfo
    counters: dict[str, int]  # libcarpool's, of its process


#: Jobs that are to take turns do so at least so often.
TURNS = 5


def run_in_turns(
    daemon: Daemon,
    bare: Bare,
    programs: Sequence[str],
    turns: Callable[[dict[str, int]], int] = lambda counters: counters["turns"],
    **request: Any,
) -> list[Ended]:
    """As `run_together`, of programs that wait for each other every few iterations.

    ``turns``: of a job's counters, how many of those turns it had that a test is about.
    """
    ended = run_together(daemon, bare, programs, together=True, **request)
    assert all(turns(job.counters) >= TURNS for job in ended), [job.counters for job in ended]
    return ended


def run_together(
    daemon: Daemon, bare: Bare, programs: Sequence[str], *, together: bool = False, **request: Any
) -> list[Ended]:
    """Jobs that begin to compute at the same time.  What each computes is what it computes alone."""
    jobs = [daemon.submit(program, meet=True, **request) for program in programs]
    expected = [bare.digest(Program.named(program)) for program in programs]  # meanwhile: the jobs import torch
    daemon.meeting.begin(len(jobs), together=together)
    results = [job.result() for job in jobs]
    assert [result["digest"] for result in results] == expected
    return [Ended(job.info(), result["counters"]) for job, result in zip(jobs, results, strict=True)]
