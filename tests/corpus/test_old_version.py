"""A daemon of version 0.1.0 is killed, and today's takes over its home, its shims and its jobs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.api import JobInfo, SubmitRequest
from carpool.protocol.setting_text import setting_text
from tests.corpus.old_version import OldVersion
from tests.homes import home_directory
from tests.live import PATIENCE_S, BareRuns, LiveDaemon, Running, Script, python_path

#: A turn may change hands at every iteration, whatever that costs; all jobs belong to one lane.
EAGER = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "max_move_share_ppm": 1_000_000, "max_lanes": 1}
#: Says that it is there, and ends as it is told through a pipe.
WAITS = "import sys; print('here', flush=True); sys.exit(int(open(sys.argv[1]).read()))"
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name == "CARPOOL_TEST_RUN" or not name.startswith(("CARPOOL_", "PYTEST_"))
} | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT"), "1")


class Upgraded(LiveDaemon):
    """Begins as a daemon of the old version."""

    def __init__(self, home: Path, old: OldVersion, *devices: str) -> None:
        common = [*(f"--device={device}" for device in devices), "--threads=1"]
        options = [*common, *(f"--setting={name}={value}" for name, value in EAGER.items())]
        self._today = [*common, *(f"--set={setting_text(name, value)}" for name, value in EAGER.items())]
        self._before: dict[int, JobInfo] = {}
        #: For jobs that import Carpool themselves: workers of the old version have the old one.
        self.old_package = {"PYTHONPATH": python_path(old.source)}
        super().__init__(home, options, ENVIRONMENT | {"PYTHONPATH": python_path()}, old.environment())

    def upgrade(self) -> None:
        """Kill the old daemon, at whatever it is doing, and start today's."""
        self._before = {job.id: job for job in self.client.jobs()}
        self.kill()
        self._options = self._today
        self._own = None
        self.start()

    def adopted(self, *jobs: Running) -> bool:
        """Whether the jobs are the processes that they were, and have not been started by this daemon."""
        events = list(self.client.events())
        last = max(event.seq for event in events if event.kind == "RestartBegan")
        kinds = {job.id: [event.kind for event in events if event.seq > last and event.job == job.id] for job in jobs}
        same = all((info := job.info()).attempt == 1 and info.pid == self._before[job.id].pid for job in jobs)
        return same and all("Adopted" in found and "StartJob" not in found for found in kinds.values())

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that the daemon tells only who asks."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.005)

    def until_under_way(self, *jobs: Running) -> None:
        """Each job has computed a few more iterations, in turns that it was given since now."""
        before = [job.info() for job in jobs]
        for job, was in zip(jobs, before, strict=True):
            self.until(lambda job=job, was=was: job.info().iterations >= was.iterations + 3)  # type: ignore[misc]
            self.until(lambda job=job, was=was: job.info().switches > was.switches)  # type: ignore[misc]

    def moves(self) -> int:
        return sum(event.kind == "Offloaded" for event in self.client.events())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRuns]:
    runner = BareRuns(ENVIRONMENT, tmp_path_factory.mktemp("bare"))
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def old(bare: BareRuns, tmp_path_factory: pytest.TempPathFactory) -> OldVersion:
    """Built while the bare runs load PyTorch."""
    return OldVersion(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def script(old: OldVersion) -> type[Script]:
    """Scripts as the old version's tests have them."""
    return type("OldScript", (Script,), {"DIRECTORY": old.workloads})


@pytest.fixture
def start(old: OldVersion) -> Iterator[Callable[..., Upgraded]]:
    running, logs = list[Upgraded](), []
    with home_directory() as root:

        def make(*devices: str) -> Upgraded:
            running.append(Upgraded(root / "home", old, *devices))
            return running[-1]

        yield make
        for daemon in running:
            daemon.close()
            logs.append((daemon.home / "daemon.log").read_text())
    assert not any("Traceback" in log for log in logs), logs


def as_alone(jobs: Sequence[Running], bare: BareRuns, script: type[Script]) -> bool:
    """Whether jobs that trained until they were told to stop have the weights of as many iterations alone."""
    results: list[dict[str, Any]] = [job.result() for job in jobs]
    return results == [bare.result(script("steady", ("count", str(result["count"])))) for result in results]


def of_the_old_version(job: Running, old: OldVersion) -> bool:
    """Whether its shim and its library are those of the old version."""
    process = Path(f"/proc/{job.info().pid}")
    shim = Path(f"/proc/{(process / 'stat').read_text().rsplit(')', 1)[1].split()[1]}")
    return str(old.source) in (shim / "cmdline").read_text() and str(old.library) in (process / "maps").read_text()


def test_jobs_are_taken_over_and_go_on(
    start: Callable[..., Upgraded], old: OldVersion, script: type[Script], bare: BareRuns, tmp_path: Path
) -> None:
    daemon, release, pipe = start("host:256MiB"), tmp_path / "release", tmp_path / "pipe"
    os.mkfifo(pipe)
    pair = [daemon.submit_script(script("steady", ("until", str(release))), meet=True) for _ in range(2)]
    plain = SubmitRequest([sys.executable, "-c", WAITS, str(pipe)], "/", ENVIRONMENT)
    scripted = Running(daemon, daemon.client.submit(plain), tmp_path / "nothing")
    daemon.meeting.begin(2)
    daemon.until_under_way(*pair)
    daemon.until(lambda: "here" in scripted.log())
    assert all(of_the_old_version(job, old) for job in (*pair, scripted))
    assert len({job.info().lane for job in pair}) == 1
    daemon.upgrade()
    assert daemon.adopted(*pair, scripted), daemon.story()
    daemon.until_under_way(*pair)
    pipe.write_text("7")
    assert ((info := scripted.wait()).outcome, info.exit_code) == ("failed", 7)
    release.touch()
    assert as_alone(pair, bare, script)


def test_jobs_whose_memory_is_in_the_host_store_and_one_that_is_cancelled(
    start: Callable[..., Upgraded], script: type[Script], bare: BareRuns, tmp_path: Path
) -> None:
    daemon, release = start("host:100MiB"), tmp_path / "release"
    steady = script("steady", ("until", str(release)))
    pair = [daemon.submit_script(steady, meet=True, env={"BALLAST_MIB": "56"}) for _ in range(2)]
    daemon.meeting.begin(2)
    daemon.until_under_way(*pair)
    daemon.until(lambda: any(job.info().offloaded for job in pair))
    daemon.upgrade()
    assert daemon.adopted(*pair), daemon.story()
    moves = daemon.moves()
    daemon.until_under_way(*pair)
    daemon.until(lambda: daemon.moves() > moves + 2)
    daemon.client.cancel(pair[1].id)
    assert pair[1].wait().outcome == "cancelled"
    release.touch()
    assert as_alone(pair[:1], bare, script)


@pytest.mark.nightly("a rarer way into a state that another test reaches", stays="test_jobs_are_taken_over_and_go_on")
def test_a_service_that_pauses_a_job(start: Callable[..., Upgraded], script: type[Script], bare: BareRuns) -> None:
    daemon = start("host:256MiB")
    service = daemon.submit_script(
        script("service", ("4", "8", "40", "1")), meet=True, env=daemon.old_package, service=1
    )
    job = daemon.submit_script(script("spinner"), meet=True)
    daemon.meeting.begin(2)
    daemon.until(lambda: service.info().switches >= 3)
    daemon.upgrade()
    assert daemon.adopted(service), daemon.story()
    assert service.result() == {"right": 160, "of": 160}
    assert job.result() == bare.result(script("spinner"))
