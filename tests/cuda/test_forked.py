"""Processes of a job that multiprocessing forks, on the stub driver: they take part as spawned ones do."""

from __future__ import annotations

import pytest

from tests.cuda.rig import Bare, Daemon, Daemons
from tests.cuda.test_companions import PROGRAM, WHY, digest, restarted_while_they_compute, told
from tests.tiers import all_but_first

METHODS = ["fork", "forkserver", "forkserver --preload", "spawn"]


def workers(method: str, count: int = 1) -> str:
    return PROGRAM.replace("train", f"workers {method} --workers {count}")


@pytest.mark.parametrize("method", all_but_first(METHODS))
def test_a_worker_is_gated_as_the_job_itself(
    daemon: Daemon, bare: Bare, real_torch: dict[str, str], method: str
) -> None:
    """It is the only process that uses the device: it has the job's seat."""
    job = daemon.submit(workers(method), env=real_torch)
    result = job.result()
    assert result["digest"] == [digest(bare, PROGRAM)]
    assert result["counters"][0]["turns"] >= 1
    assert WHY not in told(daemon, job)


@pytest.mark.parametrize("method", all_but_first(METHODS))
def test_workers_have_the_device_to_themselves(
    daemon: Daemon, bare: Bare, real_torch: dict[str, str], method: str
) -> None:
    ordinary = daemon.submit("train --seed 8 --iterations 200")
    daemon.until_under_way(ordinary)
    job = daemon.submit(f"{workers(method, 2)} --meet 3", meet=True, env=real_torch)
    daemon.meeting.go(daemon.meeting.arrive(2))  # neither has ended before the other has begun
    result = job.result()
    assert result["digest"] == [digest(bare, PROGRAM)] * 2
    assert all(counters["turns"] >= 1 for counters in result["counters"])
    assert WHY in told(daemon, job)
    assert ordinary.result()["digest"] == digest(bare, "train --seed 8 --iterations 200")
    daemon.stub.wait_until_free()


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches",
    stays="tests/cuda/test_companions.py::test_companions_survive_the_daemon",
)
def test_forked_workers_survive_the_daemon(daemons: Daemons, bare: Bare) -> None:
    result = restarted_while_they_compute(daemons, bare, workers("fork", 2))
    assert result["digest"] == [digest(bare, PROGRAM)] * 2
