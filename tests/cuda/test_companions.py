"""Jobs of several processes on one GPU, on the stub driver."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemon, Daemons, Program, Running

PROGRAM = "train --seed 7 --iterations 30"
ORDINARY = "train --seed 8 --iterations 30"
PAIR = PROGRAM.replace("train", "pair")
LAUNCHER = [sys.executable, "-c", "import subprocess, sys, torch; sys.exit(subprocess.run(sys.argv[1:]).returncode)"]
PLAIN_LAUNCHER = [argument.replace(", torch", "") for argument in LAUNCHER]
RESIDENT = "train --weights 20 --iterations 30 --seed 1 --meet 3"
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
WHY = "several of its processes use the device"


def told(daemon: Daemon, job: Running) -> list[str | None]:
    """Why the core has been told that the job must be alone."""
    events = daemon.events_since(job)
    return [event.data["alone"] for event in events if event.kind == "TraitsSeen" and event.job == job.id]


def digest(bare: Bare, program: str) -> object:
    return bare.digest(Program.named(program))


def restarted_while_they_compute(daemons: Daemons, bare: Bare, program: str) -> dict[str, Any]:
    """The result of a job of two processes.  What waited for its device has been served after it."""
    daemon = daemons()
    job = daemon.submit(f"{program} --meet 3", meet=True)
    waiting = daemon.meeting.arrive(2)
    ordinary = daemon.submit(ORDINARY)
    daemon.until(lambda: (reason := ordinary.info().reason) is not None and reason.code == "exclusive")
    daemon.kill()
    daemon.start()
    daemon.until(lambda: job.info().alone == WHY)
    daemon.meeting.go(waiting)
    result = job.result()
    assert ordinary.result()["digest"] == digest(bare, ORDINARY)
    return result


def test_two_processes_have_the_device_to_themselves(daemon: Daemon, bare: Bare) -> None:
    ordinary = daemon.submit(ORDINARY)
    pair = daemon.submit(f"{PAIR} --meet 3", meet=True)
    daemon.meeting.go(daemon.meeting.arrive(2))  # neither has ended before the other has begun
    assert pair.result()["digests"] == [digest(bare, PROGRAM)] * 2
    assert ordinary.result()["digest"] == digest(bare, ORDINARY)
    assert WHY in told(daemon, pair) and told(daemon, ordinary) == []


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_two_processes_have_the_device_to_themselves"
)
def test_a_companion_waits_for_the_turn_of_another_job(daemons: Daemons, bare: Bare) -> None:
    """The other one computes when the second process comes."""
    daemon = daemons()
    ordinary = daemon.submit("train --seed 8 --iterations 400")
    daemon.until_under_way(ordinary)
    pair = daemon.submit(PAIR)
    assert pair.result()["digests"] == [digest(bare, PROGRAM)] * 2
    assert ordinary.result()["digest"] == digest(bare, "train --seed 8 --iterations 400")


def test_a_companion_that_is_killed_harms_nobody(daemon: Daemon, bare: Bare) -> None:
    pair, ordinary = daemon.submit(f"{PAIR} --victim"), daemon.submit(ORDINARY)
    assert pair.result()["digests"] == [digest(bare, PROGRAM)]
    assert ordinary.result()["digest"] == digest(bare, ORDINARY)
    daemon.stub.wait_until_free()


def test_companions_survive_the_daemon(daemons: Daemons, bare: Bare) -> None:
    assert restarted_while_they_compute(daemons, bare, PAIR)["digests"] == [digest(bare, PROGRAM)] * 2


def test_what_a_launcher_starts_shares_the_device(daemon: Daemon, bare: Bare, real_torch: dict[str, str]) -> None:
    """A launcher that has only imported PyTorch is no process that uses the device."""
    job = daemon.submit(PROGRAM, before=LAUNCHER, env=real_torch)
    result = job.result()
    assert result["digest"] == digest(bare, PROGRAM)
    assert job.info().iterations == 30 and result["counters"]["turns"] >= 1
    assert WHY not in told(daemon, job)


def test_all_processes_have_no_more_than_the_device_has(small: Daemon) -> None:
    """The driver has more than that, but the device of this daemon has not."""
    job = small.submit("beside greedy 64")
    assert job.result()["codes"] == [OUT_OF_MEMORY] * 3
    told = [event.data["size"] for event in small.events_since(job) if event.kind == "ForeignMemory"]
    assert told[-1] == 0 and all(0 <= int(str(size)) <= 40 * MIB for size in told)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_two_processes_have_the_device_to_themselves"
)
def test_two_processes_that_fit_beside_another_job(daemons: Daemons, bare: Bare) -> None:
    """It computes no more until they have ended, but its memory stays where it is."""
    daemon = daemons("cuda:0:64MiB")
    other, waiting = resident(daemon)
    program = "train --weights 8 --iterations 30 --seed 7"
    pair = daemon.submit(program.replace("train", "pair"))
    assert pair.result()["digests"] == [digest(bare, program)] * 2
    assert other.info().moved.out_bytes == 0
    daemon.meeting.go(waiting)
    assert other.result()["digest"] == digest(bare, RESIDENT)


def test_who_finds_no_room_beside_another_job_is_started_again(small: Daemon, bare: Bare) -> None:
    """Nobody makes room for it; the second time it waits until the device is empty."""
    other, waiting = resident(small)
    spills = small.submit("beside spill 28", before=PLAIN_LAUNCHER)
    small.until(lambda: spills.info().attempt == 2)
    assert other.info().moved.out_bytes == 0
    small.meeting.go(waiting)
    assert other.result()["digest"] == digest(bare, RESIDENT)
    assert spills.result()["digest"] == digest(bare, "spill 28")


def resident(daemon: Daemon) -> tuple[Running, list[socket.socket]]:
    """A job that has 22 MiB, and waits for the test."""
    other = daemon.submit(RESIDENT, meet=True, persistent_bytes=22 * MIB, ephemeral_bytes=4 * MIB)
    return other, daemon.meeting.arrive(1)
