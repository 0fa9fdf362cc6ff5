"""Jobs of several processes on one GPU, on the stub driver."""

from __future__ import annotations

import sys

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


def test_two_processes_have_the_device_to_themselves(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons()
    ordinary = daemon.submit(ORDINARY)
    pair = daemon.submit(PAIR)
    assert pair.result()["digests"] == [digest(bare, PROGRAM)] * 2
    assert ordinary.result()["digest"] == digest(bare, ORDINARY)
    assert WHY in told(daemon, pair) and told(daemon, ordinary) == []


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
    daemon = daemons()
    pair = daemon.submit(f"{PAIR} --meet 3", meet=True)
    waiting = daemon.meeting.arrive(2)
    ordinary = daemon.submit(ORDINARY)
    daemon.until(lambda: (reason := ordinary.info().reason) is not None and reason.code == "exclusive")
    daemon.kill()
    daemon.start()
    daemon.until(lambda: pair.info().alone == WHY)
    daemon.meeting.go(waiting)
    assert pair.result()["digests"] == [digest(bare, PROGRAM)] * 2
    assert ordinary.result()["digest"] == digest(bare, ORDINARY)


def test_what_a_launcher_starts_shares_the_device(daemons: Daemons, bare: Bare) -> None:
    """A launcher that has only imported PyTorch is no process that uses the device."""
    daemon = daemons()
    job = daemon.submit(PROGRAM, before=LAUNCHER)
    result = job.result()
    assert result["digest"] == digest(bare, PROGRAM)
    assert job.info().iterations == 30 and result["counters"]["turns"] >= 1
    assert WHY not in told(daemon, job)
