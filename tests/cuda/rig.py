"""Real daemons whose device is the stub GPU, real jobs on it, and the same programs without Carpool."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carpool.protocol.api import JobInfo, SubmitRequest
from carpool.protocol.client import Client
from tests.devices.cuda_stub import Stub

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
NATIVE = HERE.parents[1] / "native"
PATIENCE_S = 60.0
#: A turn may change hands at every iteration, whatever a switch or a move costs, and all jobs belong to one lane.
EAGER = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "max_move_share_ppm": 1_000_000, "max_lanes": 1}


@dataclass(frozen=True)
class Program:
    """A program with its arguments (after the file for results)."""

    name: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def named(cls, text: str) -> Program:
        name, *arguments = text.split()
        return cls(name, tuple(arguments))

    def command(self, out: Path) -> list[str]:
        return [sys.executable, str(PROGRAMS / f"{self.name}.py"), str(out), *self.arguments]


def build_allocator(driver: Path) -> Path:
    """The stand-in for PyTorch's allocator, beside the driver; the gate knows the real one by its file's name."""
    library = driver.parent / "libc10_cuda.so"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    command = [*compiler, "-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Werror", f"-I{NATIVE}"]
    subprocess.run([*command, str(HERE / "c10_cuda.c"), str(driver), "-o", str(library)], check=True, timeout=60)
    return library


class Bare:
    """Results of programs run without Carpool, each computed once, on a stub GPU of their own."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self._directory = directory
        self._digests: dict[Program, Any] = {}
        server = [sys.executable, str(HERE.parent / "e2e" / "bare_server.py")]
        environment = environment | {"CARPOOL_STUB": str(directory / "state"), "CARPOOL_STUB_DEVICES": "1GiB"}
        self._server = subprocess.Popen(
            server, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def digest(self, program: Program) -> Any:
        if program not in self._digests:
            self._digests[program] = self._run(program)["digest"]
        return self._digests[program]

    def _run(self, program: Program) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        out = self._directory / f"out{len(self._digests)}"
        log = out.with_suffix(".log")
        print(json.dumps([str(log), *program.command(out)[1:]]), file=self._server.stdin)
        code = self._server.stdout.readline().strip()
        assert code == "0", f"{program} fails without Carpool, too ({code}):\n{log.read_text()}"
        return json.loads(out.read_text())

    def close(self) -> None:
        self._server.communicate(timeout=PATIENCE_S)


class Meeting:
    """Where programs wait for each other before they begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._listener.settimeout(PATIENCE_S)

    def arrive(self, count: int) -> list[socket.socket]:
        """The next ``count`` programs are there, and wait until they may `go` on."""
        return [self._listener.accept()[0] for _ in range(count)]

    def go(self, waiting: Sequence[socket.socket]) -> None:
        for connection in waiting:
            connection.sendall(b"!")
            connection.close()

    def begin(self, count: int) -> None:
        """Let the next ``count`` programs go, all at once."""
        self.go(self.arrive(count))

    def close(self) -> None:
        self._listener.close()


class Running:
    """A job that has been submitted."""

    def __init__(self, daemon: Daemon, number: int, out: Path) -> None:
        self._daemon, self.id, self.out = daemon, number, out

    def info(self) -> JobInfo:
        return self._daemon.client.job(self.id)

    def wait(self) -> JobInfo:
        info = self._daemon.client.wait(self.id, PATIENCE_S)
        assert info.phase == "ended", f"job {self.id} still {info.phase}: {info.reason}\n{self._daemon.story()}"
        return info

    def log(self) -> str:
        return (self._daemon.home / "jobs" / str(self.id) / "log").read_text()

    def until_under_way(self) -> None:
        """Wait until it has computed a few iterations."""
        for line in self._daemon.client.logs(self.id, follow=True):
            if b"under way" in line:
                return
        raise AssertionError(f"job {self.id} ended before it was under way:\n{self.log()}\n{self._daemon.story()}")

    def signal(self, number: signal.Signals) -> None:
        pid = self.info().pid
        assert pid is not None
        os.kill(pid, number)

    def result(self) -> dict[str, Any]:
        """What it wrote, once it has ended well."""
        info = self.wait()
        assert info.outcome == "succeeded", (
            f"{info.command} {info.outcome} {info.exit_code} {info.signal} {info.reason}\n"
            f"{self.log()}\n{self._daemon.story()}"
        )
        assert "carpool: warning" not in self.log()
        return json.loads(self.out.read_text())


class Daemon:
    """A daemon with a state directory of its own; in the end its jobs are stopped, too."""

    def __init__(self, home: Path, environment: dict[str, str], devices: Sequence[str], options: Sequence[str]) -> None:
        self.home, self._environment = home, environment
        settings = [f"--setting={name}={value}" for name, value in EAGER.items()]
        self._options = [*(f"--device={device}" for device in devices), *settings, "--threads=1", *options]
        home.mkdir()
        self.meeting = Meeting(home / "meet")
        self._count = 0
        self.start()

    def start(self) -> None:
        """Also after `kill`."""
        ready, write = os.pipe()
        command = [sys.executable, "-m", "carpool.daemon", "--home", str(self.home), *self._options]
        self._process = subprocess.Popen(
            [*command, f"--ready-fd={write}"], pass_fds=(write,), start_new_session=True, env=self._environment
        )
        os.close(write)
        with open(ready) as pipe:
            answer = json.loads(pipe.readline() or "{}")
        assert answer.get("ok"), f"the daemon did not start: {answer}"
        self.client = Client(self.home)

    def kill(self) -> None:
        """At once, whatever it is doing; its jobs go on."""
        self._process.kill()
        self._process.wait()

    def kill_agent(self) -> None:
        """The process that has the context on the GPU."""
        agents = [pid for pid in children(self._process.pid) if b"carpool.devices.cuda.agent" in command_of(pid)]
        assert agents, self.story()
        for pid in agents:
            os.kill(pid, signal.SIGKILL)

    def submit(self, program: str, *, meet: bool = False, **request: Any) -> Running:
        self._count += 1
        out = self.home / f"out{self._count}"
        environment = self._environment | ({"MEETING_POINT": str(self.meeting.path)} if meet else {})
        argv = Program.named(program).command(out)
        submission = SubmitRequest(argv=argv, cwd=str(self.home), env=environment, **request)
        return Running(self, self.client.submit(submission), out)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the daemon tells only who asks."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.02)

    def story(self) -> str:
        """For messages: what the jobs say, and the end of the daemon's log."""
        lines = [f"{job.id} {job.phase} {job.outcome} turn={job.holds_turn} {job.reason}" for job in self.client.jobs()]
        log = (self.home / "daemon.log").read_text().splitlines()[-30:]
        return "\n".join([*lines, *log])

    def close(self) -> None:
        self.meeting.close()
        if self._process.poll() is not None:  # a test gave up while no daemon lived
            self.start()
        try:
            with Client(self.home) as client:
                client.shutdown(stop_jobs=True)
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()


class Daemons:
    """Starts daemons and stops them all in the end; none of them may have made a mistake."""

    def __init__(self, stub: Stub, allocator: Path) -> None:
        self._stub, self._allocator = stub, allocator
        self._root = Path(tempfile.mkdtemp(prefix="carpool-"))  # short: paths of sockets are limited to 107 bytes
        self._running: list[Daemon] = []

    def __call__(self, *devices: str, options: Sequence[str] = ()) -> Daemon:
        home = self._root / f"d{len(self._running)}"
        environment = clean_environment(self._allocator) | self._stub.environment()
        self._running.append(Daemon(home, environment, devices or ("cuda:0",), options))
        return self._running[-1]

    def close(self) -> None:
        logs = []
        for daemon in self._running:
            daemon.close()
            logs.append((daemon.home / "daemon.log").read_text())
        shutil.rmtree(self._root)
        for log in logs:
            assert "Traceback" not in log, log


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in found for child in file.read_text().split()]


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def clean_environment(allocator: Path) -> dict[str, str]:
    """What every program gets, in a job or not."""
    other = ("CARPOOL_", "PYTEST_", "CUDA_")
    ours = {k: value for k, value in os.environ.items() if k == "CARPOOL_TEST_RUN" or not k.startswith(other)}
    return ours | {"STAND_IN_ALLOCATOR": str(allocator), "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Ended:
    """A job that has ended well, with the result that it has without Carpool."""

    info: JobInfo
    counters: dict[str, int]  # libcarpool's, of its process


def run_together(daemon: Daemon, bare: Bare, programs: Sequence[str], **request: Any) -> list[Ended]:
    """Jobs that begin to compute at the same time.  What each computes is what it computes alone."""
    jobs = [daemon.submit(program, meet=True, **request) for program in programs]
    expected = [bare.digest(Program.named(program)) for program in programs]  # meanwhile: the jobs import torch
    daemon.meeting.begin(len(jobs))
    results = [job.result() for job in jobs]
    assert [result["digest"] for result in results] == expected
    return [Ended(job.info(), result["counters"]) for job, result in zip(jobs, results, strict=True)]
