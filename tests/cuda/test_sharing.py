"""What a job computes on a GPU is bit for bit what it computes alone: alone in a lane, and with others in turns."""

from __future__ import annotations

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemon, Daemons, run_in_turns, run_together
from tests.devices.cuda_stub import Stub
from tests.tiers import REPLACED

#: Jobs of unknown memory are measured one after another, which can take as long as these programs run.
KNOWN = {"persistent_bytes": 8 * MIB, "ephemeral_bytes": 8 * MIB}


@pytest.mark.nightly(REPLACED, stays="tests/cuda/pytorch/test_training.py::test_families_of_models_in_turns")
def test_a_job_alone(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    daemon = daemons()
    (job,) = run_together(daemon, bare, ["train --seed 1"])
    assert job.info.device == "cuda0"
    assert job.info.persistent_bytes >= 4 * MIB and job.info.ephemeral_bytes >= 4 * MIB
    assert job.info.iterations == 20 and job.counters["turns"] >= 1
    stub.wait_until_free()  # an idle device holds nothing


@pytest.mark.nightly(REPLACED, stays="tests/cuda/pytorch/test_training.py::test_families_of_models_in_turns")
@pytest.mark.parametrize(("count", "how"), [(3, ""), (2, " --optimizer")], ids=["announced", "steps"])
def test_jobs_that_take_turns_at_every_iteration(daemons: Daemons, bare: Bare, count: int, how: str) -> None:
    programs = [f"train --iterations 150 --seed {10 * number}{how}" for number in range(count)]
    jobs = run_in_turns(daemons(), bare, programs, **KNOWN)
    assert len({job.info.lane for job in jobs}) == 1
    assert all(job.counters["residue_total"] >= 4 * MIB for job in jobs), [job.counters for job in jobs]


def test_discarding_memory_is_work_for_which_a_job_needs_the_turn(daemon: Daemon, bare: Bare) -> None:
    jobs = run_in_turns(daemon, bare, ["discard --iterations 150", "train --iterations 150"], **KNOWN)
    assert all(job.info.alone is None for job in jobs)


@pytest.mark.nightly(REPLACED, stays="tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves")
def test_memory_that_is_closed_between_turns(daemons: Daemons, bare: Bare) -> None:
    programs = [f"train --iterations 150 --seed {seed}" for seed in (1, 2)]
    run_in_turns(daemons(options=["--debug-close-lanes"]), bare, programs, **KNOWN)


def test_only_live_blocks_are_saved_at_boundaries(daemon: Daemon, bare: Bare) -> None:
    programs = [f"train --iterations 150 --live 64 --seed {seed}" for seed in (1, 2)]

    def elsewhere_of(counters: dict[str, int]) -> int:
        return counters["early"] + counters["forced"]  # there nobody knows what is alive

    jobs = run_in_turns(daemon, bare, programs, lambda counters: counters["turns"] - elsewhere_of(counters), **KNOWN)
    for counters in (job.counters for job in jobs):
        elsewhere = elsewhere_of(counters)
        assert counters["residue_total"] <= (counters["turns"] - elsewhere) * (64 << 10) + elsewhere * 4 * MIB


def test_jobs_of_unknown_memory_are_measured_and_share(daemon: Daemon, bare: Bare) -> None:
    jobs = run_together(daemon, bare, ["train --iterations 40 --seed 3", "train --iterations 40 --seed 4"])
    assert all(job.info.iterations == 40 for job in jobs)


def test_jobs_in_two_lanes_compute_side_by_side(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons(options=["--sharing=mps", "--policy=pack", "--set=max_lanes=2"])
    jobs = run_together(daemon, bare, [f"train --iterations 30 --seed {seed}" for seed in (5, 6)], **KNOWN)
    assert len({job.info.lane for job in jobs}) == 2
    assert all(job.counters["residue_total"] == 0 for job in jobs)


@pytest.mark.nightly(REPLACED, stays="tests/cuda/pytorch/test_training.py::test_contents_of_memory_in_turns")
def test_replayed_graphs_find_their_memory(daemons: Daemons, bare: Bare) -> None:
    run_in_turns(daemons(), bare, [f"graph --seed {seed}" for seed in (5, 6)], **KNOWN)
