"""Jobs of several processes on one GPU, on the stub driver."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemon, Daemons, Program, Running
from tests.devices.cuda_stub import Stub

PROGRAM = "train --seed 7 --iterations 30"
ORDINARY = "train --seed 8 --iterations 30"
PAIR = PROGRAM.replace("train", "pair")
LAUNCHER = [sys.executable, "-c", "import subprocess, sys, torch; sys.exit(subprocess.run(sys.argv[1:]).returncode)"]
WHY = "several of its processes use the device"


def told(daemon: Daemon, job: Running) -> list[str | None]:
    """Why the core has been told that the job must be alone."""
    return [
        event.data["alone"] for event in daemon.client.events() if event.kind == "TraitsSeen" and event.job == job.id
    ]


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


def test_two_processes_have_the_device_to_themselves(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons()
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


def test_a_companion_that_is_killed_harms_nobody(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    daemon = daemons()
    pair, ordinary = daemon.submit(f"{PAIR} --victim"), daemon.submit(ORDINARY)
    assert pair.result()["digests"] == [digest(bare, PROGRAM)]
    assert ordinary.result()["digest"] == digest(bare, ORDINARY)
    stub.wait_until_free()


def test_companions_survive_the_daemon(daemons: Daemons, bare: Bare) -> None:
    assert restarted_while_they_compute(daemons, bare, PAIR)["digests"] == [digest(bare, PROGRAM)] * 2


def test_what_a_launcher_starts_shares_the_device(daemons: Daemons, bare: Bare) -> None:
    """A launcher that has only imported PyTorch is no process that uses the device."""
    daemon = daemons()
    job = daemon.submit(PROGRAM, before=LAUNCHER)
    result = job.result()
    assert result["digest"] == digest(bare, PROGRAM)
    assert job.info().iterations == 30 and result["counters"]["turns"] >= 1
    assert WHY not in told(daemon, job)


def test_what_a_companion_asks_for_is_its_jobs(daemons: Daemons) -> None:
    """The driver has more than that, but the device of this daemon has not."""
    daemon = daemons("cuda:0:48MiB")
    job = daemon.submit("beside 64")
    assert job.result()["codes"] == [2, 2, 2]
    (reason, *_) = [
        event.data["reason"] for event in daemon.client.events() if event.kind == "DenyMemory" and event.job == job.id
    ]
    assert reason["code"] == "too_large" and "cuda0 holds 48 MiB" in reason["text"]


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_two_processes_have_the_device_to_themselves"
)
def test_others_make_room_for_a_companion(daemons: Daemons, bare: Bare) -> None:
    """Two processes of 12 MiB do not fit beside one of 24."""
    daemon = daemons("cuda:0:40MiB")
    resident = "train --weights 20 --iterations 30 --seed 1 --meet 3"
    other = daemon.submit(resident, meet=True, persistent_bytes=22 * MIB, ephemeral_bytes=4 * MIB)
    waiting = daemon.meeting.arrive(1)
    program = "train --weights 8 --iterations 30 --seed 7"
    pair = daemon.submit(program.replace("train", "pair"))
    assert pair.result()["digests"] == [digest(bare, program)] * 2
    assert other.info().moved.out_bytes >= 20 * MIB
    daemon.meeting.go(waiting)
    assert other.result()["digest"] == digest(bare, resident)
