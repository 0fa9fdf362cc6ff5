"""Jobs and the daemon are killed, the store is too small, the disk is full, all while memory is being moved."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.watching import is_moving, iterates, last_event, nothing_left, until, until_event

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons, Running
    from tests.live import Workload

HEEDLESS = {"max_move_share_ppm": 1_000_000}
BALLAST_MIB = 49  # of a device of 96: room for one job
#: The least number of kills, one after another: there are more until one has come while memory was moved.
ROUNDS = pytest.mark.parametrize("rounds", [1, 3])


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """When it exists the jobs come to an end."""
    return tmp_path / "release"


def steady(daemon: Daemon, workload: type[Workload], release: Path, ballast_mib: int = BALLAST_MIB) -> Running:
    return daemon.submit(workload("steady", ("until", str(release))), ballast_mib=ballast_mib)


def finished(bare: Bare, workload: type[Workload], release: Path, jobs: Sequence[Running]) -> None:
    """Let the jobs end: each has computed what it would have alone."""
    release.touch()
    for job in jobs:
        result = job.result()
        assert result["count"] > 0
        assert [result] == bare([workload("steady", ("count", str(result["count"])))])


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/memory/test_oversubscription.py::test_a_job_killed_while_it_moves",
)
@ROUNDS
def test_jobs_killed_while_they_are_moved(
    bare: Bare, daemons: Daemons, workload: type[Workload], release: Path, moments: random.Random, rounds: int
) -> None:
    daemon = daemons("host:320MiB", **HEEDLESS)
    survivor = steady(daemon, workload, release, 160)
    until_event(daemon, "GrantTurn", survivor)
    in_flight = 0
    for number in itertools.count():
        if number >= rounds and in_flight:
            break
        victim = steady(daemon, workload, release, 200)
        until_event(daemon, "Offload", victim)
        time.sleep(moments.uniform(0, 0.03) * (number % rounds))
        victim.signal(signal.SIGKILL)
        ended = victim.wait()
        assert (ended.outcome, ended.signal) == ("failed", signal.SIGKILL), victim.log()
        in_flight += is_moving(daemon, victim)
        iterates(daemon, survivor)
    finished(bare, workload, release, [survivor])
    nothing_left(daemon)


def killed_while_moving(daemon: Daemon) -> bool:
    """Whether an offload was under way when the latest restart began."""
    moving: set[int | None] = set()
    caught = False
    for event in daemon.client.events():
        if event.kind == "Offload":
            moving.add(event.job)
        elif event.kind in ("Offloaded", "OffloadFailed"):
            moving.discard(event.job)
        elif event.kind == "RestartBegan":
            caught = bool(moving)
            moving.clear()
    return caught


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/memory/test_oversubscription.py::test_the_daemon_is_killed_while_a_job_moves",
)
@ROUNDS
def test_the_daemon_killed_while_jobs_are_moved(
    bare: Bare, daemons: Daemons, workload: type[Workload], release: Path, moments: random.Random, rounds: int
) -> None:
    daemon = daemons("host:96MiB", **HEEDLESS)
    jobs = [steady(daemon, workload, release) for _ in range(3)]
    for job in jobs:
        until_event(daemon, "Offloaded", job)
    hit = 0
    for number in itertools.count():
        if number >= rounds and hit:
            break
        time.sleep(moments.uniform(0, 0.1))
        daemon.kill()
        time.sleep(moments.uniform(0, 0.1))  # they go on as far as they can
        daemon.start()
        hit += killed_while_moving(daemon)
        for job in jobs:
            iterates(daemon, job)
    finished(bare, workload, release, jobs)
    nothing_left(daemon)


def test_a_store_that_is_too_small_makes_jobs_wait(
    bare: Bare, daemons: Daemons, workload: type[Workload], release: Path
) -> None:
    daemon = daemons("host:96MiB", store="8MiB", **HEEDLESS)
    holder = steady(daemon, workload, release)
    iterates(daemon, holder)
    others = [daemon.submit(workload(name), ballast_mib=BALLAST_MIB) for name in ("sgd", "adam")]
    until(lambda: any(job.info().reason.code == "store" for job in others if job.info().reason), daemon)
    assert all(job.info().phase != "ended" for job in others)
    finished(bare, workload, release, [holder])
    assert [job.result() for job in others] == bare([workload("sgd"), workload("adam")])
    nothing_left(daemon)


@pytest.fixture
def small_disk(daemons: Daemons) -> Iterator[Path]:
    """A file system of 8 MiB where the next daemon lives."""
    home = daemons.next_home
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0711", "none", home], capture_output=True)
    if mounted.returncode != 0:
        home.rmdir()
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
    yield home
    daemons.stop()
    subprocess.run(["umount", "-l", home], check=True)


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/test_startup.py::test_a_full_disk_refuses_submissions_and_loses_nothing",
)
def test_a_full_disk_keeps_no_job_from_being_moved(
    bare: Bare, daemons: Daemons, workload: type[Workload], release: Path, small_disk: Path
) -> None:
    daemon = daemons("host:96MiB", **HEEDLESS)
    jobs = [steady(daemon, workload, release) for _ in range(2)]
    for job in jobs:
        until_event(daemon, "Offloaded", job)
    fill(small_disk / "filler")
    before = [job.info().moved.out_bytes for job in jobs]
    for job in jobs * 3:
        iterates(daemon, job)
    assert all(job.info().moved.out_bytes > size for job, size in zip(jobs, before, strict=True))
    assert not [line for line in (small_disk / "daemon.log").read_text().splitlines() if "Traceback" in line]
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    finished(bare, workload, release, jobs)
    nothing_left(daemon)
    daemon.kill()
    daemon.start()
    assert [job.info().outcome for job in jobs] == ["succeeded"] * 2
    assert last_event(daemon) > 0
