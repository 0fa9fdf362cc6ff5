"""Jobs, agents and daemons that die or stop at any moment harm nobody else's work."""

from __future__ import annotations

import signal

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemon, Daemons, Program, Running
from tests.devices.cuda_stub import Stub
from tests.tiers import REPLACED

KNOWN = {"persistent_bytes": 8 * MIB, "ephemeral_bytes": 8 * MIB}
ENDLESS = "train --iterations 1000000 --seed 9"
#: Two of these do not fit on a device of 40 MiB together.  They wait for the test after three iterations.
LARGE = {"persistent_bytes": 22 * MIB, "ephemeral_bytes": 4 * MIB}
TWO = [f"train --weights 20 --iterations 30 --seed {seed} --meet 3" for seed in (1, 2)]


def ended_well(jobs: list[Running], programs: list[str], bare: Bare) -> bool:
    return [job.result()["digest"] for job in jobs] == [bare.digest(Program.named(program)) for program in programs]


@pytest.mark.nightly(
    REPLACED, stays="tests/cuda/pytorch/test_training.py::test_contents_outlive_the_daemon_and_a_neighbour"
)
def test_a_job_that_is_killed_does_not_harm_the_others(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    program = "train --iterations 60 --seed 5"
    daemon = daemons()
    victim, other = (daemon.submit(text, meet=True, **KNOWN) for text in (ENDLESS, program))
    daemon.meeting.begin(2)
    daemon.until_under_way(victim)
    victim.signal(signal.SIGKILL)
    assert victim.wait().signal == signal.SIGKILL
    assert ended_well([other], [program], bare)
    stub.wait_until_free()


def test_a_job_that_is_cancelled_leaves_nothing(daemon: Daemon) -> None:
    jobs = [daemon.submit(ENDLESS, **KNOWN) for _ in range(2)]
    for job in jobs:
        daemon.until_under_way(job)
    assert daemon.stub.used() >= 12 * MIB
    for job in jobs:
        daemon.client.cancel(job.id)
    assert [job.wait().outcome for job in jobs] == ["cancelled", "cancelled"]
    daemon.stub.wait_until_free()


@pytest.mark.nightly(
    REPLACED, stays="tests/cuda/pytorch/test_training.py::test_contents_outlive_the_daemon_and_a_neighbour"
)
@pytest.mark.parametrize("device", ["cuda:0", "cuda:0:40MiB"], ids=["room", "moving"])
def test_jobs_survive_the_daemon(daemons: Daemons, bare: Bare, device: str) -> None:
    daemon = daemons(device)
    jobs = [daemon.submit(program, meet=True, **LARGE) for program in TWO]
    daemon.meeting.begin(2)
    for _ in range(2):
        daemon.kill()
        daemon.start()
    assert ended_well(jobs, TWO, bare)
    assert [job.info().iterations for job in jobs] == [30, 30]


def test_jobs_survive_the_agent(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons("cuda:0:40MiB")
    jobs = [daemon.submit(program, meet=True, **LARGE) for program in TWO]
    waiting = daemon.meeting.arrive(2)
    daemon.kill_agent()
    daemon.meeting.go(waiting)
    assert ended_well(jobs, TWO, bare)
    daemon.until(lambda: "starting another one" in (daemon.home / "daemon.log").read_text())


def test_the_memory_of_a_job_that_is_stopped_serves_others(small: Daemon, bare: Bare) -> None:
    """It can do nothing for that itself."""
    stopped, first = small.submit(TWO[0], meet=True, **LARGE), small.meeting.arrive(1)
    other, second = small.submit(TWO[1], meet=True, **LARGE), small.meeting.arrive(1)
    stopped.signal(signal.SIGSTOP)  # the other one has computed, so this one has no turn
    small.meeting.go(second)
    assert ended_well([other], TWO[1:], bare)
    assert stopped.info().offloaded
    stopped.signal(signal.SIGCONT)
    small.meeting.go(first)
    assert ended_well([stopped], TWO[:1], bare)
