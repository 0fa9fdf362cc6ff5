"""More memory than the GPU has: jobs take turns with it, and what fits nowhere is refused."""

from __future__ import annotations

import os

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemon, Daemons, Program, run_together
from tests.devices.cuda_stub import Stub
from tests.emulator.harness import Worker
from tests.tiers import REPLACED

#: Of the device in these tests, in MiB.  Three jobs of 24 MiB do not fit.
CAPACITY = 48
LARGE = "train --weights 24 --scratch 4 --iterations 12 --seed {}"
HINTS = {"persistent_bytes": 26 * MIB, "ephemeral_bytes": 4 * MIB}


@pytest.mark.nightly(REPLACED, stays="tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves")
def test_jobs_that_exceed_the_device_together_move(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    daemon = daemons(f"cuda:0:{CAPACITY}MiB")
    jobs = run_together(daemon, bare, [LARGE.format(seed) for seed in (1, 2, 3)], **HINTS)
    moved = [job.info.moved for job in jobs]
    assert sum(move.out_bytes for move in moved) >= 2 * 24 * MIB
    assert all(move.out_bytes >= move.in_bytes for move in moved)
    assert sum(job.info.persistent_bytes for job in jobs) > CAPACITY * MIB
    stub.wait_until_free()


def test_what_does_not_fit_alone_is_refused_to_this_job_only(small: Daemon, bare: Bare) -> None:
    program = "train --iterations 30 --seed 5"
    other = small.submit(program)
    greedy = small.submit(f"greedy {2 * CAPACITY}")
    assert greedy.result()["codes"] == [2, 2, 2]
    assert other.result()["digest"] == bare.digest(Program.named(program))


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches",
    stays="tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves",
)
def test_memory_of_jobs_that_have_ended_serves_others(daemons: Daemons, bare: Bare) -> None:
    daemon = daemons(f"cuda:0:{CAPACITY}MiB")
    for seed in (1, 2):
        (job,) = run_together(daemon, bare, [LARGE.format(seed)])
        assert job.info.moved.out_bytes == 0


@pytest.mark.nightly(REPLACED, stays="tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves")
def test_memory_that_comes_and_goes_in_turns(daemons: Daemons, bare: Bare) -> None:
    """All kinds of it, of all sizes; at times the device has no room for all of it."""
    programs = [f"churn --seed {seed} --most {most}" for seed, most in ((1, 16), (2, 8), (3, 20))]
    jobs = run_together(daemons(f"cuda:0:{CAPACITY}MiB"), bare, programs)
    assert all(job.counters["frees"] >= 10 for job in jobs)


def test_what_a_foreign_process_has_taken_is_waited_for(daemons: Daemons, bare: Bare, stub: Stub) -> None:
    stub.devices(64 * MIB)
    daemon = daemons(f"cuda:0:{CAPACITY}MiB")
    program = LARGE.format(1)
    with Worker(os.environ) as foreign:
        foreign.run(f"data = ok(driver.cuMemAlloc({32 * MIB}))")
        job = daemon.submit(program)
        daemon.until(lambda: (reason := job.info().reason) is not None and reason.code == "device_memory")
    assert job.result()["digest"] == bare.digest(Program.named(program))
