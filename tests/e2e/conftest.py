"""A real daemon, real jobs, and the same scripts without any of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.api import DeviceInfo, SubmitRequest
from carpool.protocol.setting_text import setting_text
from carpool.runtime import native
from tests.live import PATIENCE_S, BareRuns, LiveDaemon, Running, Workload, python_path

STAND_IN = Path(__file__).with_name("stand_in")
#: A turn may change hands at every iteration, whatever a switch costs.
EAGER = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "warm_limit": 16, "max_lanes": 1}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")
NO_HINTS: Mapping[str, int] = {}
NO_VARIABLES: Mapping[str, str] = {}
#: Workloads that use PyTorch's compiler, or what builds on it.
WHOLE_TORCH = ("compiled", "ranks")


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """The same for jobs and for bare runs: one thread, and code that torch.compile makes only once."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "PYTEST_"))}
    threads = dict.fromkeys(THREADS, "1")
    compiled = {
        "TORCHINDUCTOR_CACHE_DIR": str(request.config.cache.mkdir("inductor")),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return ours | threads | compiled | {"PYTHONPATH": ""}


@pytest.fixture(scope="session")
def jobs_environment(environment: dict[str, str]) -> dict[str, str]:
    """That of jobs; what they are compared with runs with the whole PyTorch."""
    return environment | {"PYTHONPATH": python_path()}


@pytest.fixture(scope="session")
def stand_in(pytestconfig: pytest.Config) -> dict[str, str]:
    return environment_of_stand_in(pytestconfig)


def environment_of_stand_in(config: pytest.Config) -> dict[str, str]:
    """What scripts have in theirs that only take memory: see `stand_in/torch.py`."""
    if config.option.tier == "all":
        return {}
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None
    c10 = Path(found.origin).with_name("lib") / "libc10.so"
    return {"PYTHONPATH": python_path(STAND_IN), "STAND_IN_C10": str(c10)}


class Bare(BareRuns):
    def __call__(self, workloads: Sequence[Workload]) -> list[dict[str, Any]]:
        return [self.result(workload) for workload in workloads]


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


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """In this process as in the daemon's jobs: the order of sums depends on it."""
    import torch  # takes seconds: not for everybody who collects the tests

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
            *(f"--set={setting_text(name, value)}" for name, value in settings.items()),
            *store,
            f"--policy={self.policy}",
            f"--threads={self.threads}",
        ]


class Daemon(LiveDaemon):
    """``stand_in``: what those jobs have in their environment that only take memory."""

    def __init__(
        self, home: Path, environment: dict[str, str], setup: Setup, stand_in: Mapping[str, str] = NO_VARIABLES
    ) -> None:
        super().__init__(home, setup.options(), environment)
        self._stand_in = stand_in

    def submit_taking(self, script: str, env: Mapping[str, str] = NO_VARIABLES, **request: Any) -> Running:
        """``script``: it only takes memory, as PyTorch does."""
        argv = [sys.executable, "-c", script]
        environment = self._environment | env | self._stand_in
        submission = SubmitRequest(argv=argv, cwd=str(self.home), env=environment, **request)
        return Running(self, self.client.submit(submission), self.home / "none")

    def submit(
        self,
        workload: Workload,
        *,
        meet: bool = False,
        before: Sequence[str] = (),
        hints: Mapping[str, int] = NO_HINTS,
        ballast_mib: int = 0,
    ) -> Running:
        """``ballast_mib`` is memory that it keeps besides."""
        env = {"BALLAST_MIB": str(ballast_mib)} | ({"PYTHONPATH": ""} if workload.name in WHOLE_TORCH else {})
        return self.submit_script(workload, meet=meet, before=before, env=env, **hints)

    def run_together(
        self,
        workloads: Sequence[Workload],
        bare: Bare,
        *,
        beside: Sequence[Running] = (),
        hints: Mapping[str, int] = NO_HINTS,
        ballast_mib: int = 0,
        together: bool = False,
    ) -> tuple[list[Running], list[dict[str, Any]]]:
        """Jobs that begin to compute at the same time, and what the same scripts write without Carpool.

        ``beside`` are jobs submitted before (with ``meet``) that begin with them.  ``together``: all have iterations,
        and wait for each other.
        """
        jobs = [self.submit(workload, meet=True, hints=hints, ballast_mib=ballast_mib) for workload in workloads]
        expected = bare(workloads)  # meanwhile: the jobs import torch and then wait for each other
        self.meeting.begin(len(jobs) + len(beside), together=together)
        return jobs, expected

    def device(self) -> DeviceInfo:
        (device,) = self.client.devices()
        return device


class Daemons:
    """Starts daemons and stops them all in the end."""

    def __init__(self, environment: dict[str, str], stand_in: dict[str, str]) -> None:
        self._environment, self._stand_in = environment, stand_in
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
        self._running.append(Daemon(self.next_home, environment, setup, self._stand_in))
        return self._running[-1]

    def stop(self) -> None:
        for daemon in self._running:
            daemon.close()
        self._running.clear()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._root)


def _daemons(environment: dict[str, str], config: pytest.Config) -> Iterator[Daemons]:
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")
    daemons = Daemons(environment, environment_of_stand_in(config))
    yield daemons
    daemons.close()


@pytest.fixture(scope="session")
def eager_daemon(jobs_environment: dict[str, str], pytestconfig: pytest.Config) -> Iterator[Daemon]:
    """One daemon for all tests that leave nothing behind in it."""
    for daemons in _daemons(jobs_environment, pytestconfig):
        yield daemons()


@pytest.fixture
def daemons(jobs_environment: dict[str, str], pytestconfig: pytest.Config) -> Iterator[Daemons]:
    yield from _daemons(jobs_environment, pytestconfig)


@pytest.fixture(scope="module")
def module_daemons(jobs_environment: dict[str, str], pytestconfig: pytest.Config) -> Iterator[Daemons]:
    yield from _daemons(jobs_environment, pytestconfig)


@pytest.fixture(scope="module")
def shared(module_daemons: Daemons) -> Daemon:
    return module_daemons()


@pytest.fixture
def daemon(shared: Daemon) -> Iterator[Daemon]:
    """The module's, for tests that do not want it otherwise; jobs that they leave behind are ended."""
    yield shared
    left = [job.id for job in shared.client.jobs() if job.phase != "ended"]
    for job in left:
        shared.client.cancel(job)
    for job in left:
        shared.client.wait(job, PATIENCE_S)


@pytest.fixture(scope="session")
def workload() -> type[Workload]:
    return Workload
