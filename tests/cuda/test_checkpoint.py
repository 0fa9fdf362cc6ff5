"""Checkpoint jobs beside others, on one GPU: nothing of Carpool is in their processes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from carpool.core.model import MIB
from carpool.protocol.api import JobInfo
from carpool.protocol.packets import STATE, STOPPED, stat_fields
from tests.cuda.rig import Bare, Daemon, Daemons, Program, Running

KNOWN = {"persistent_bytes": 8 * MIB, "ephemeral_bytes": 8 * MIB}
ENDLESS = "train --iterations 1000000 --seed 9"
GUEST = "plain --iterations 40 --seed 7 --meet 20"
OTHER = "train --iterations 60 --seed 1"


def suspended(daemon: Daemon, program: str = GUEST) -> tuple[Running, list[socket.socket]]:
    """A job that waits for the test in the middle of its work, and has been suspended there, as others compute."""
    job = daemon.submit(program, checkpoint=True, meet=True)
    waiting = daemon.meeting.arrive(1)
    daemon.until(lambda: is_suspended(job.info()))
    return job, waiting


def is_suspended(info: JobInfo) -> bool:
    """It arrives, resumed from a suspend before its first memory, before the daemon knows that it is back."""
    return info.offloaded and info.pid is not None and stat_fields(info.pid)[STATE] in STOPPED


def beside(daemon: Daemon) -> Running:
    other = daemon.submit(ENDLESS, **KNOWN)
    daemon.until_under_way(other)
    return other


def end(daemon: Daemon, job: Running) -> None:
    daemon.client.cancel(job.id)
    assert job.wait().outcome == "cancelled"


def as_alone(jobs: list[Running], programs: list[str], bare: Bare) -> bool:
    return [job.result()["digest"] for job in jobs] == [bare.digest(Program.named(program)) for program in programs]


def test_it_takes_turns_with_others(daemon: Daemon, bare: Bare) -> None:
    other = beside(daemon)
    job, waiting = suspended(daemon)
    second = daemon.submit(OTHER, **KNOWN)
    daemon.until(lambda: job.info().moved.in_bytes >= 8 * MIB)
    daemon.meeting.go(waiting)
    assert as_alone([job, second], [GUEST, OTHER], bare)
    info = job.info()
    assert info.checkpoint and info.switches >= 2 and info.moved.out_bytes >= 8 * MIB
    end(daemon, other)


@pytest.mark.nightly("a rarer way into a state that another test reaches", stays="test_it_takes_turns_with_others")
def test_two_of_them(daemons: Daemons, bare: Bare) -> None:
    programs = [f"plain --weights 60 --iterations 10 --seed {seed} --meet 5" for seed in (3, 4)]
    daemon = daemons()
    jobs = [daemon.submit(program, checkpoint=True, meet=True) for program in programs]
    daemon.meeting.go(daemon.meeting.arrive(2))
    assert as_alone(jobs, programs, bare)
    assert all(job.info().switches >= 2 for job in jobs)


def test_it_survives_the_daemon_while_it_is_suspended(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons()
    other = beside(daemon)
    job, waiting = suspended(daemon)
    daemon.kill()
    daemon.start()
    daemon.meeting.go(waiting)
    assert as_alone([job], [GUEST], bare)
    end(daemon, other)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_it_survives_the_daemon_while_it_is_suspended"
)
def test_it_survives_the_daemon_in_its_turn(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons()
    job = daemon.submit(GUEST, checkpoint=True, meet=True)
    waiting = daemon.meeting.arrive(1)
    daemon.kill()
    daemon.start()
    daemon.meeting.go(waiting)
    assert as_alone([job], [GUEST], bare)


def test_it_is_cancelled_while_it_is_suspended(daemon: Daemon) -> None:
    other = beside(daemon)
    job, waiting = suspended(daemon)
    end(daemon, job)
    end(daemon, other)
    for connection in waiting:
        connection.close()
    assert not (daemon.home / f"suspended-{job.id}").exists()
    daemon.stub.wait_until_free()


def keeps_its_device(
    daemon: Daemon,
    bare: Bare,
    meanwhile: Callable[[], object] = lambda: None,
    program: str = f"{GUEST} --managed",
    **request: Any,
) -> bool:
    """A job that the driver cannot suspend, and another one that has to wait for its end."""
    job = daemon.submit(program, checkpoint=True, meet=True, **request)
    waiting = daemon.meeting.arrive(1)
    other = daemon.submit(OTHER, **KNOWN)
    meanwhile()
    daemon.until(lambda: job.info().alone is not None)
    daemon.until(lambda: (reason := other.info().reason) is not None and reason.code == "exclusive")
    daemon.meeting.go(waiting)
    return as_alone([job, other], [program, OTHER], bare)


def test_one_that_the_driver_cannot_suspend_keeps_its_device(daemon: Daemon, bare: Bare) -> None:
    assert keeps_its_device(daemon, bare)


def test_one_whose_device_the_driver_suspends_nothing_on_keeps_it(daemon: Daemon, bare: Bare) -> None:
    """As on an instance (MIG)."""
    assert keeps_its_device(daemon, bare, program=GUEST, env={"EMULATOR_FAIL": "stub_checkpoint=2"})


def test_one_that_the_driver_ends_is_started_again_and_its_command_is_not_suspended_again(
    daemon: Daemon, bare: Bare
) -> None:
    """As by driver 610.57, in the first half of a suspend."""
    job = daemon.submit(GUEST, checkpoint=True, meet=True, env={"EMULATOR_FAIL": "stub_locked=1"})
    first = daemon.meeting.arrive(1)
    other = daemon.submit(ENDLESS, **KNOWN)
    waiting = daemon.meeting.arrive(1)
    daemon.until(lambda: "ended when the driver suspended it" in (job.info().alone or ""))
    daemon.meeting.go(waiting)
    assert as_alone([job], [GUEST], bare)
    info = job.info()
    assert info.attempt == 2 and "NVIDIA's driver has ended the job" in info.attempts[0].text
    for connection in first:
        connection.close()
    end(daemon, other)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches",
    stays="test_one_that_the_driver_cannot_suspend_keeps_its_device",
)
def test_it_keeps_its_device_after_a_restart(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons()

    def restart() -> None:
        daemon.kill()
        daemon.start()

    assert keeps_its_device(daemon, bare, restart)
