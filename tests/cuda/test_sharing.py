"""What a job computes on a GPU is bit for bit what it computes alone; which GPU it sees, and who has one alone."""

from __future__ import annotations

import pytest

from carpool.core.model import MIB
from carpool.daemon.jobs.constraints import EXCLUSIVE_BECAUSE
from carpool.protocol.seat import Trait
from tests.cuda.rig import Bare, Daemon, Daemons, Program, run_in_turns, run_together
from tests.devices.cuda_stub import MEMORY, Stub
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


UUID = "GPU-63617270-6f6f-6c2d-7374-75622d67703{}"


def test_each_job_sees_its_own_device_and_no_other(two: Daemon) -> None:
    jobs = [two.submit("which", device=f"cuda{index}") for index in (1, 0)]
    assert [job.result()["devices"] for job in jobs] == [[UUID.format(1)], [UUID.format(0)]]
    assert [job.info().device for job in jobs] == ["cuda1", "cuda0"]


def test_a_host_device_beside_it_hides_nothing(daemons: Daemons, stub: Stub) -> None:
    stub.devices(MEMORY, 32 * MIB)
    daemon = daemons("cuda:0", "host:64MiB")
    (here,) = [daemon.submit("which", device="host0")]
    assert here.result()["devices"] == [UUID.format(0), UUID.format(1)]


PROGRAM = "train --seed 7 --iterations 10"


def test_an_exclusive_job_has_the_drivers_own_memory(daemon: Daemon, bare: Bare) -> None:
    (job,) = run_together(daemon, bare, [PROGRAM], exclusive=True)
    assert job.info.iterations == 10
    assert job.info.persistent_bytes >= 4 * MIB and job.info.ephemeral_bytes >= 4 * MIB
    assert job.counters["residue_total"] == 0


def test_much_memory_of_the_drivers_own_keeps_the_others_waiting(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    stub.devices(768 * MIB)
    daemon = daemons("cuda:0:128MiB")
    fixed = daemon.submit("fixed 257", meet=True)
    daemon.until_under_way(fixed)
    daemon.until(lambda: fixed.info().alone is not None)
    other = daemon.submit(PROGRAM)
    daemon.until(lambda: (reason := other.info().reason) is not None and reason.code == "exclusive")
    assert fixed.info().fixed_bytes >= 257 * MIB
    daemon.meeting.begin(1)
    assert fixed.result()["digest"] == bare.digest(Program.named("fixed 257"))
    assert other.result()["digest"] == bare.digest(Program.named(PROGRAM))


def test_work_of_another_interface_keeps_the_others_waiting(daemon: Daemon, bare: Bare) -> None:
    outside = daemon.submit("outside", meet=True)
    daemon.until_under_way(outside)
    daemon.until(lambda: outside.info().alone == EXCLUSIVE_BECAUSE[Trait.UNGATED])
    other = daemon.submit(PROGRAM)
    daemon.until(lambda: (reason := other.info().reason) is not None and reason.code == "exclusive")
    daemon.meeting.begin(1)
    assert outside.result()["digest"] == bare.digest(Program.named("outside"))
    assert other.result()["digest"] == bare.digest(Program.named(PROGRAM))
