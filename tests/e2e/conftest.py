"""A real daemon, real jobs, and the same scripts without any of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.api import DeviceInfo, JobInfo, SubmitRequest
from carpool.protocol.client import Client
from carpool.runtime import native

SCRIPTS = Path(__file__).parents[1] / "workloads"
#: A turn may change hands at every iteration, whatever a switch costs.
EAGER = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "warm_limit": 16, "max_lanes": 1}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")
PATIENCE_S = 100.0
NO_HINTS: Mapping[str, int] = {}


@dataclass(frozen=True)
class Workload:
    """A script with its arguments (after the file for results)."""

    script: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def named(cls, text: str) -> Workload:
        script, *arguments = text.split()
        return cls(script, tuple(arguments))

    def command(self, out: Path) -> list[str]:
        return [sys.executable, str(SCRIPTS / f"{self.script}.py"), str(out), *self.arguments]


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """The same for jobs and for bare runs: one thread, and code that torch.compile makes only once."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "PYTEST_"))}
    threads = dict.fromkeys(THREADS, "1")
    compiled = {
        "TORCHINDUCTOR_CACHE_DIR": str(request.config.cache.mkdir("inductor")),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return ours | threads | compiled


class Bare:
    """Results of scripts run without Carpool, each computed once."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self._directory = directory
        self._results: dict[Workload, dict[str, Any]] = {}
        server = [sys.executable, str(Path(__file__).with_name("bare_server.py"))]
        self._server = subprocess.Popen(
            server, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __call__(self, workloads: Sequence[Workload]) -> list[dict[str, Any]]:
        for workload in workloads:
            if workload not in self._results:
                self._results[workload] = self._run(workload)
        return [self._results[workload] for workload in workloads]

    def _run(self, workload: Workload) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        out = self._directory / f"out{len(self._results)}"
        log = out.with_suffix(".log")
        print(json.dumps([str(log), *workload.command(out)[1:]]), file=self._server.stdin)
        code = self._server.stdout.readline().strip()
        assert code == "0", f"{workload} fails without Carpool, too ({code}):\n{log.read_text()}"
        return json.loads(out.read_text())

    def close(self) -> None:
        self._server.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="session")
def bare(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    runner = Bare(environment, tmp_path_factory.mktemp("bare"))
    yield runner
    runner.close()


#: More than there are cores, so that they are interrupted in each other's midst.
CREW = 3


@pytest.fixture(scope="session")
def crew_bare(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    """Runs scripts with `CREW` OpenMP threads: the order of sums depends on their number."""
    runner = Bare(environment | dict.fromkeys(THREADS, str(CREW)), tmp_path_factory.mktemp("crew"))
    yield runner
    runner.close()


class Meeting:
    """Where scripts wait for each other before they begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._listener.settimeout(PATIENCE_S)

    def begin(self, count: int) -> None:
        """Let the next ``count`` scripts go, all at once."""
        waiting = [self._listener.accept()[0] for _ in range(count)]
        for connection in waiting:
            connection.sendall(b"!")
            connection.close()

    def close(self) -> None:
        self._listener.close()


@dataclass(frozen=True)
class Setup:
    """How a daemon is started."""

    devices: tuple[str, ...] = ("host:512MiB",)
    policy: str = "fair"
    store: str | None = None
    threads: int = 1
    settings: Mapping[str, int] = field(default_factory=dict)

    def options(self) -> list[str]:
        settings = EAGER | dict(self.settings)
        store = [f"--store={self.store}"] if self.store else []
        return [
            *(f"--device={device}" for device in self.devices),
            *(f"--setting={name}={value}" for name, value in settings.items()),
            *store,
            f"--policy={self.policy}",
            f"--threads={self.threads}",
        ]


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

    def result(self) -> dict[str, Any]:
        """What it wrote, once it has ended well."""
        info = self.wait()
        assert info.outcome == "succeeded", (
            f"{info.command} {info.outcome} {info.exit_code} {info.signal}\n{self.log()}"
        )
        assert "carpool: warning" not in self.log()
        return json.loads(self.out.read_text())


class Daemon:
    """A daemon with a state directory of its own."""

    def __init__(self, home: Path, environment: dict[str, str], setup: Setup) -> None:
        self.home, self._environment, self._setup = home, environment, setup
        home.mkdir(exist_ok=True)  # a test may have mounted something there
        self.meeting = Meeting(home / "meet")
        self._count = 0
        self.start()

    def start(self) -> None:
        """Also after `kill`."""
        ready, write = os.pipe()
        command = [sys.executable, "-m", "carpool.daemon", "--home", str(self.home), *self._setup.options()]
        self._process = subprocess.Popen([*command, f"--ready-fd={write}"], pass_fds=(write,), start_new_session=True)
        os.close(write)
        with open(ready) as pipe:
            answer = json.loads(pipe.readline() or "{}")
        assert answer.get("ok"), f"the daemon did not start: {answer}"
        self.client = Client(self.home)

    def kill(self) -> None:
        """At once, whatever it is doing; its jobs go on."""
        self._process.kill()
        self._process.wait()

    def submit(
        self,
        workload: Workload,
        *,
        meet: bool = False,
        before: Sequence[str] = (),
        hints: Mapping[str, int] = NO_HINTS,
        ballast_mib: int = 0,
    ) -> Running:
        """``before`` is a command that runs the script's command; ``ballast_mib`` is memory that it keeps besides."""
        self._count += 1
        out = self.home / f"out{self._count}"
        environment = self._environment | {"BALLAST_MIB": str(ballast_mib)}
        environment |= {"MEETING_POINT": str(self.meeting.path)} if meet else {}
        request = SubmitRequest(argv=[*before, *workload.command(out)], cwd=str(self.home), env=environment, **hints)
        return Running(self, self.client.submit(request), out)

    def run_together(
        self,
        workloads: Sequence[Workload],
        bare: Bare,
        *,
        beside: Sequence[Running] = (),
        hints: Mapping[str, int] = NO_HINTS,
        ballast_mib: int = 0,
    ) -> tuple[list[Running], list[dict[str, Any]]]:
        """Jobs that begin to compute at the same time, and what the same scripts write without Carpool.

        ``beside`` are jobs submitted before (with ``meet``) that begin with them.
        """
        jobs = [self.submit(workload, meet=True, hints=hints, ballast_mib=ballast_mib) for workload in workloads]
        expected = bare(workloads)  # meanwhile: the jobs import torch and then wait for each other
        self.meeting.begin(len(jobs) + len(beside))
        return jobs, expected

    def device(self) -> DeviceInfo:
        (device,) = self.client.devices()
        return device

    def story(self) -> str:
        """For messages: what the jobs say, and the end of the daemon's log."""
        lines = [f"{job.id} {job.phase} {job.outcome} turn={job.holds_turn} {job.reason}" for job in self.client.jobs()]
        log = (self.home / "daemon.log").read_text().splitlines()[-20:]
        return "\n".join([*lines, *log])

    def kill_job(self, job: Running, number: signal.Signals) -> None:
        pid = job.info().pid
        assert pid is not None
        os.kill(pid, number)

    def close(self) -> None:
        """Stop the jobs and the daemon, whatever state they are in."""
        self.meeting.close()
        if self._process.poll() is not None:  # a test gave up while no daemon lived
            self.start()
        try:
            with Client(self.home) as client:  # a test may have left its own in the middle of an answer
                client.shutdown(stop_jobs=True)
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()


class Daemons:
    """Starts daemons and stops them all in the end."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._root = Path(tempfile.mkdtemp(prefix="carpool-"))  # short: paths of sockets are limited to 107 bytes
        self._running: list[Daemon] = []

    @property
    def next_home(self) -> Path:
        return self._root / f"d{len(self._running)}"

    def __call__(
        self, *devices: str, policy: str = "fair", store: str | None = None, threads: int = 1, **settings: int
    ) -> Daemon:
        setup = Setup(policy=policy, store=store, threads=threads, settings=settings)
        setup = replace(setup, devices=devices) if devices else setup
        environment = self._environment | dict.fromkeys(THREADS, str(threads))
        self._running.append(Daemon(self.next_home, environment, setup))
        return self._running[-1]

    def stop(self) -> None:
        for daemon in self._running:
            daemon.close()
        self._running.clear()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._root)


def _daemons(environment: dict[str, str]) -> Iterator[Daemons]:
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")
    daemons = Daemons(environment)
    yield daemons
    daemons.close()


@pytest.fixture(scope="session")
def eager_daemon(environment: dict[str, str]) -> Iterator[Daemon]:
    """One daemon for all tests that leave nothing behind in it."""
    for daemons in _daemons(environment):
        yield daemons()


@pytest.fixture
def daemons(environment: dict[str, str]) -> Iterator[Daemons]:
    yield from _daemons(environment)


@pytest.fixture(scope="session")
def workload() -> type[Workload]:
    return Workload
