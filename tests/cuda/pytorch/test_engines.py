"""Serving engines that take most of what the driver says that there is, side by side."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from carpool.core.model import MIB
from tests.cuda.pytorch.rig import Alone, differing, together
from tests.cuda.rig import Daemons

CAPACITY = 64 * MIB
CONTEXT = "2MiB"
STAYS = "tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves"


@pytest.mark.nightly("half a minute of PyTorch", stays=STAYS)
def test_two_engines_that_each_fill_the_device_run_side_by_side(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started in the same second; each finds the device as if it were alone there, and what it keeps stays right.

    A context takes less than a tenth of it, as on cards that serve.
    """
    monkeypatch.setenv("EMULATOR_CONTEXT", CONTEXT)
    size = f"{CAPACITY // MIB}MiB"
    alone = Alone(tmp_path, size, EMULATOR_CONTEXT=CONTEXT)
    scripts = [f"engine {seed} 20" for seed in (1, 2)]
    jobs = together(daemons(f"cuda:0:{size}"), scripts, keep=True)
    results = zip(scripts, jobs, strict=True)
    assert [differing(job.result(), alone.result(script)) for script, job in results] == [[], []]
    assert all(job.info().residue_bytes > CAPACITY // 2 and job.info().switches > 3 for job in jobs)


@pytest.mark.nightly(
    "half a minute of PyTorch", stays="tests/cuda/test_made_memory.py::test_made_memory_moves_with_its_job"
)
def test_engines_with_memory_of_their_own_making_move_and_sleep(daemons: Daemons, tmp_path: Path) -> None:
    """Two do not fit; each has its weights, and addresses, at every turn, also after it was asleep."""
    library = tmp_path / "libsleeping.so"
    source = Path(__file__).with_name("sleeping_allocator.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    engine = {"SLEEPING_ALLOCATOR": str(library)}
    alone = Alone(tmp_path, "512MiB", **engine)
    scripts = [f"sleeper {seed} 20" for seed in (1, 2)]
    jobs = together(daemons(f"cuda:0:{CAPACITY // MIB}MiB"), scripts, keep=True, env=engine)
    results = zip(scripts, jobs, strict=True)
    assert [differing(job.result(), alone.result(script)) for script, job in results] == [[], []]
    assert all((job.info().fixed_bytes, job.info().alone) == (0, None) for job in jobs)
    assert all(job.info().moved.in_bytes > 32 * MIB for job in jobs)
