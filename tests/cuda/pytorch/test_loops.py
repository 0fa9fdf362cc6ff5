"""Training as libraries write it, in turns and in several processes: bit for bit what the CPU computes."""

from __future__ import annotations

import pytest

from tests.cuda.pytorch.conftest import MEMORY, OnCpu
from tests.cuda.pytorch.rig import KNOWN, differing, in_turns, right
from tests.cuda.rig import Daemons
from tests.devices.cuda_stub import Stub
from tests.tiers import RARER_WAY

STAYS = "tests/cuda/pytorch/test_training.py::test_families_of_models_in_turns"
RANKS = "ranks 12"


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_loops_of_libraries_in_turns(daemons: Daemons, cpu: OnCpu) -> None:
    """With workers, pinned batches, schedules, checkpoints, closures and averages of weights."""
    in_turns(daemons(), ["loops trainer 4", "loops closures 4"], cpu, **KNOWN)


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_five_jobs_in_a_lane(daemons: Daemons, cpu: OnCpu) -> None:
    scripts = ["loops trainer 3", "loops closures 3", "train 8 mlp", "train 6 gpt", "exhausted 20"]
    jobs = in_turns(daemons(), scripts, cpu, persistent_bytes=24 * 2**20, ephemeral_bytes=48 * 2**20)
    assert len({job.info().lane for job in jobs}) == 1


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_ranks_on_two_devices(daemons: Daemons, stub: Stub, cpu: OnCpu) -> None:
    """`mp.spawn` and DDP over gloo, beside a job that has waited for one of the devices."""
    stub.devices(MEMORY, MEMORY)
    daemon = daemons("cuda:0", "cuda:1")
    gang = daemon.submit(RANKS, gpus=2)
    other = daemon.submit("train 6 mlp", device="cuda1")
    assert differing(gang.result(), cpu(RANKS)) == []
    assert differing(other.result(), cpu("train 6 mlp")) == []
    assert sorted(gang.info().devices) == ["cuda0", "cuda1"]


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_tensors_that_are_passed_between_processes(daemons: Daemons) -> None:
    """With memory of the driver's; another job goes on when this one has ended."""
    daemon = daemons()
    passing = daemon.submit("passed 8", exclusive=True)
    other = daemon.submit("integrity 9 60 8", **KNOWN)
    assert passing.result() == {"right": True, "ended": 0}
    assert differing(other.result(), right("")) == []


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_tensors_that_cannot_be_passed_are_named(daemons: Daemons) -> None:
    job = daemons().submit("passed 1", **KNOWN)
    assert job.wait().outcome == "failed"
    assert "needs a GPU of its own: submit it with --exclusive" in job.log()
