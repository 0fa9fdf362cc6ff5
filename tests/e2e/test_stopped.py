"""Stopped and paused jobs, and one whose iteration does not end, keep nobody waiting, and lose nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.e2e.watching import (
    MIB,
    causes,
    counted,
    is_moving,
    iterates,
    last_event,
    nothing_left,
    process_state,
    until,
    until_event,
)

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons, Running
    from tests.live import Workload
import random
import time

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemons
    from tests.live import Workload


MS = 1_000
SETTINGS = {"max_move_share_ppm": 1_000_000, "forced_after_us": 100 * MS}
#: What a busy machine may add to any time.
SLACK_US = 5_000 * MS


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """When it exists the jobs come to an end."""
    return tmp_path / "release"


def steady(daemon: Daemon, workload: type[Workload], release: Path, ballast_mib: int) -> Running:
    return daemon.submit(workload("steady", ("until", str(release))), ballast_mib=ballast_mib)


def finished(bare: Bare, workload: type[Workload], release: Path, jobs: Sequence[tuple[str, Running]]) -> None:
    """Let the jobs end: each has computed what it would have alone."""
    release.touch()
    for script, job in jobs:
        result = job.result()
        assert [result] == bare([workload(script, ("count", str(result["count"])))])


def stop(daemon: Daemon, job: Running) -> int:
    """Its pid."""
    job.signal(signal.SIGSTOP)
    pid = job.info().pid
    assert pid is not None
    until(lambda: process_state(pid) == "T", daemon)
    return pid


def others_go_on(daemon: Daemon, pid: int, other: Running) -> None:
    """And nobody has let the stopped one go on for good."""
    iterates(daemon, other)
    until(lambda: process_state(pid) == "T", daemon)
    iterates(daemon, other, 20)
    assert process_state(pid) == "T"


def waits_us(daemon: Daemon, job: Running) -> list[int]:
    """From each time the job wanted a turn until it had one. Between turns it may want none, as while it imports."""
    waits: list[int] = []
    wanted: int | None = None
    for event in daemon.client.events():
        if event.job == job.id and event.kind == "TurnWanted":
            wanted = event.now_us
        elif event.job == job.id and event.kind == "GrantTurn" and wanted is not None:
            waits.append(event.now_us - wanted)
            wanted = None
    return waits


def memory_wait_us(daemon: Daemon, job: Running) -> int:
    """From the job's first request for memory until it was answered."""
    events = [event for event in daemon.client.events() if event.job == job.id]
    asked = next(event.now_us for event in events if event.kind == "MemoryRequested")
    return next(e.now_us for e in events if e.kind == "GrantMemory" and e.data["answers"] == "persistent") - asked


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/memory/test_oversubscription.py::test_a_stopped_holder_that_has_memory_too",
)
def test_a_stopped_holder(bare: Bare, daemons: Daemons, workload: type[Workload], release: Path) -> None:
    """It comes to no boundary, and is not waited for: that would be 10 s."""
    daemon = daemons("host:96MiB", **SETTINGS | {"forced_after_us": 10_000 * MS})
    holder = steady(daemon, workload, release, 49)
    iterates(daemon, holder)
    pid = stop(daemon, holder)
    assert holder.info().holds_turn
    other = steady(daemon, workload, release, 49)
    others_go_on(daemon, pid, other)
    assert not holder.info().holds_turn and holder.info().offloaded
    assert waits_us(daemon, other)[0] <= SLACK_US
    os.kill(pid, signal.SIGCONT)
    iterates(daemon, holder)
    finished(bare, workload, release, [("steady", holder), ("steady", other)])
    nothing_left(daemon)


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/memory/test_oversubscription.py::test_a_stopped_job_without_a_turn_is_taken_by_its_shim",
)
def test_a_stopped_idle_job_that_is_on_the_device(
    bare: Bare, daemons: Daemons, workload: type[Workload], release: Path, tmp_path: Path
) -> None:
    """A small job takes its turn first, so that only memory is left to be taken."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    daemon = daemons("host:96MiB", **SETTINGS)
    idle = daemon.submit(workload("pausing", (str(pipe),)), ballast_mib=49)
    until(lambda: b"idle" in b"".join(daemon.client.logs(idle.id)), daemon)
    small = steady(daemon, workload, release, 0)
    iterates(daemon, small)
    until(lambda: not idle.info().holds_turn, daemon)
    pid = stop(daemon, idle)
    assert not idle.info().offloaded
    big = steady(daemon, workload, release, 49)
    others_go_on(daemon, pid, big)
    assert idle.info().offloaded and idle.info().stored_bytes >= 49 * MIB
    assert memory_wait_us(daemon, big) <= SLACK_US
    os.kill(pid, signal.SIGCONT)
    pipe.write_text("go on")
    assert [idle.result()] == bare([workload("pausing", ("-",))])
    finished(bare, workload, release, [("steady", small), ("steady", big)])
    nothing_left(daemon)


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/memory/test_oversubscription.py::test_a_job_stopped_while_it_moves_runs_until_it_has_moved",
)
def test_a_job_stopped_while_it_is_moved(bare: Bare, daemons: Daemons, workload: type[Workload], release: Path) -> None:
    daemon = daemons("host:320MiB", **SETTINGS)
    other = steady(daemon, workload, release, 160)
    iterates(daemon, other)
    victim = steady(daemon, workload, release, 200)
    hit, since = False, 0  # the first time is slow: fresh pages for 200 MiB
    while not hit:  # it is stopped once more if it had moved before the signal came
        until_event(daemon, "Offload", victim, since)
        pid = stop(daemon, victim)
        hit = is_moving(daemon, victim)
        others_go_on(daemon, pid, other)
        os.kill(pid, signal.SIGCONT)
        iterates(daemon, victim)
        since = last_event(daemon)
    finished(bare, workload, release, [("steady", other), ("steady", victim)])
    nothing_left(daemon)


def test_a_hung_holder_starves_nobody(bare: Bare, daemons: Daemons, workload: type[Workload], release: Path) -> None:
    quantum_us = 50 * MS
    daemon = daemons("host:96MiB", quantum_us=quantum_us, **SETTINGS)
    hung = daemon.submit(workload("endless", ("until", str(release))), ballast_mib=49)
    until_event(daemon, "GrantTurn", hung)
    until(lambda: hung.info().persistent_bytes >= 49 * MIB, daemon)
    other = steady(daemon, workload, release, 49)
    until(lambda: causes(daemon)["forced"] >= 5, daemon)
    iterates(daemon, other, 20)
    finished(bare, workload, release, [("endless", hung), ("steady", other)])
    moved = hung.info().moved
    saving = moved.out_us // max(1, counted(daemon, "Offloaded")[hung.id])
    # One pause of the machine is not starvation: the middle one of the waits that were any.
    waits = filter(None, waits_us(daemon, other))
    assert median(waits) <= quantum_us + SETTINGS["forced_after_us"] + saving + SLACK_US
    nothing_left(daemon)


def test_a_paused_job_computes_the_same(
    bare: Bare, daemons: Daemons, workload: type[Workload], tmp_path: Path, moments: random.Random
) -> None:
    """Wherever in an iteration it is paused; meanwhile another job has most of the device."""
    release = tmp_path / "release"
    daemon = daemons("host:96MiB")
    job = daemon.submit(workload("steady", ("until", str(release))), ballast_mib=49)
    iterates(daemon, job)
    pid = job.info().pid
    for _ in range(3):
        time.sleep(moments.random() / 20)
        daemon.client.pause(job.id)
        until(lambda: job.info().offloaded, daemon)
        done = job.info().iterations
        (device,) = daemon.client.devices()
        assert device.granted_bytes == 0 and job.info().stored_bytes >= 49 * MIB
        assert job.info().reason is not None and job.info().reason.code == "paused_by_user"
        other = daemon.submit_taking(f"import torch; torch.ones({49 * MIB // 4})")
        assert other.wait().outcome == "succeeded"
        assert (job.info().iterations, job.info().pid, job.info().offloaded) == (done, pid, True)
        daemon.client.resume(job.id)
        iterates(daemon, job)
    release.touch()
    result = job.result()
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])
    nothing_left(daemon)
