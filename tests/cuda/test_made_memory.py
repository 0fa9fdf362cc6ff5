"""Memory that programs make themselves (cuMemCreate) comes by grant, and moves with its job."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemons, Program, run_together
from tests.devices.cuda_stub import Stub
from tests.live import PATIENCE_S

#: Of the device in these tests, in MiB.  Three jobs of 27 MiB do not fit.
CAPACITY = 48
HINTS = {"persistent_bytes": 28 * MIB, "ephemeral_bytes": 4 * MIB}
TWO = [f"maker --iterations 30 --seed {seed} --sleep 7" for seed in (1, 2)]


def test_made_memory_moves_with_its_job(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    daemon = daemons(f"cuda:0:{CAPACITY}MiB")
    programs = ["maker --seed 1", "maker --seed 2 --sleep 3", "train --weights 24 --scratch 4 --iterations 12"]
    jobs = run_together(daemon, bare, programs, **HINTS)
    assert sum(job.info.moved.out_bytes for job in jobs) >= 2 * 24 * MIB
    assert [(job.info.fixed_bytes, job.info.alone) for job in jobs] == [(0, None)] * 3
    assert jobs[0].info.persistent_bytes >= 27 * MIB
    stub.wait_until_free()


def test_made_memory_beyond_the_device_is_refused(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons(f"cuda:0:{CAPACITY}MiB")
    other = daemon.submit("train --iterations 30 --seed 5")
    large = daemon.submit(f"maker --pieces 2 --mib {CAPACITY}")
    assert daemon.client.wait(large.id, PATIENCE_S).exit_code == 1 and "cuMemCreate: 2" in large.log()
    assert other.result()["digest"] == bare.digest(Program.named("train --iterations 30 --seed 5"))


def test_made_memory_outlives_the_daemon(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons(f"cuda:0:{CAPACITY}MiB")
    jobs = [daemon.submit(program, meet=True, **HINTS) for program in TWO]
    daemon.meeting.begin(2)
    for _ in range(2):
        daemon.kill()
        daemon.start()
    assert [job.result()["digest"] for job in jobs] == [bare.digest(Program.named(program)) for program in TWO]
    assert all(job.info().fixed_bytes == 0 for job in jobs)


@pytest.mark.nightly(
    "waits for idle jobs twice",
    stays="tests/core/test_oversubscription.py::test_a_restart_counts_what_left_and_lies_in_no_store",
)
def test_made_memory_counts_for_the_host_store(daemons: Daemons) -> None:
    """A restarted daemon, too, moves no second job out where there is host memory for one."""
    daemon = daemons(f"cuda:0:{CAPACITY}MiB", options=["--store=36MiB"])
    first, one = daemon.submit(TWO[0], meet=True), daemon.meeting.arrive(1)
    second, other = daemon.submit(TWO[1], meet=True), daemon.meeting.arrive(1)  # the first one's has left
    daemon.kill()
    daemon.start()
    third = daemon.submit("maker --seed 3", meet=True)

    def waits() -> bool:
        reason = third.info().reason
        return reason is not None and reason.code == "store"

    daemon.until(waits)
    assert (first.info().offloaded, second.info().offloaded) == (True, False)
    daemon.meeting.go(one)
    daemon.meeting.go(other)


def test_made_memory_of_a_stopped_job_serves_others(daemons: Daemons, bare: Bare) -> None:
    """The job is continued to move its memory itself, and stopped again."""
    daemon = daemons(f"cuda:0:{CAPACITY}MiB")
    other, first = daemon.submit(TWO[0], meet=True, **HINTS), daemon.meeting.arrive(1)
    stopped, second = daemon.submit(TWO[1], meet=True, **HINTS), daemon.meeting.arrive(1)
    stopped.signal(signal.SIGSTOP)  # the other one's memory has left for this one's
    daemon.meeting.go(first)
    assert other.result()["digest"] == bare.digest(Program.named(TWO[0]))
    assert stopped.info().offloaded
    stopped.signal(signal.SIGCONT)
    daemon.meeting.go(second)
    assert stopped.result()["digest"] == bare.digest(Program.named(TWO[1]))


def test_made_memory_counts_once(
    nvml_library: Path, monkeypatch: pytest.MonkeyPatch, daemons: Daemons, bare: Bare
) -> None:
    """NVML tells of it, too, and it is not taken for memory of other programs."""
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([os.environ["LD_LIBRARY_PATH"], str(nvml_library.parent)]))
    daemon, program = daemons(options=["--telemetry-interval=0.2s"]), "maker --mib 40"
    job, waiting = daemon.submit(program, meet=True), daemon.meeting.arrive(1)
    seen = set[int | None]()

    def measured_again() -> bool:
        telemetry = daemon.client.devices()[0].telemetry
        seen.add(telemetry.taken_us if telemetry is not None else None)
        return len(seen) > 3

    daemon.until(measured_again)
    told = [event.data["size"] for event in daemon.events_since(job) if event.kind == "ForeignMemory"]
    assert told and max(told) < 100 * MIB  # contexts
    daemon.meeting.go(waiting)
    assert job.result()["digest"] == bare.digest(Program.named(program))
