"""What PyTorch's CUDA build computes on an emulated GPU is what the CPU computes, bit by bit, or the process ends."""

from __future__ import annotations

import pytest

from tests.emulator.pytorch.conftest import Run
from tests.tiers import RARER_WAY

#: `emulator.results.operator.WRONG`, and SIGABRT by the driver.
WRONG, ABORTED = 86, -6


def test_operators_and_training_are_the_cpus(run: Run) -> None:
    result = run("both.py").result()
    assert result["different"] == []
    assert result["cases"] > 30


@pytest.mark.parametrize("program", ["random_numbers.py", "graphs.py"])
def test_what_holds_on_a_gpu_holds_here(run: Run, program: str) -> None:
    result = run(program).result()
    assert result
    assert [name for name, holds in result.items() if not holds] == []


@pytest.mark.nightly(RARER_WAY, stays="test_what_holds_on_a_gpu_holds_here")
def test_a_device_that_is_not_the_current_one(run: Run) -> None:
    result = run("devices.py", EMULATOR_DEVICES="64MiB,64MiB", EMULATOR_KERNEL_US="20000").result()
    assert result == {"current": True, "in order": True, "current afterwards": True}


@pytest.mark.usefixtures("whole_torch")
def test_threads_and_compiled_programs(run: Run) -> None:
    result = run("threads.py").result()
    assert (result["threads"], result["compile"]) == (True, True)
    assert result["graphs"] == 1


@pytest.mark.parametrize(
    ("what", "status", "named"),
    [
        ("operator", WRONG, "_scaled_dot_product_efficient_attention.default cannot be computed on the CPU"),
        ("size", WRONG, "aten.index.Tensor cannot be computed on the CPU: index 9 is out of bounds"),
        ("kernel", ABORTED, "computes nothing, and no operator that is recomputed has asked for it"),
    ],
)
def test_nothing_wrong_goes_on(run: Run, what: str, status: int, named: str) -> None:
    ended = run("unknown.py", what)
    assert ended.status == status
    assert named in ended.errors
    assert "went on" not in ended.output


@pytest.mark.nightly(RARER_WAY, stays="test_nothing_wrong_goes_on")
def test_without_results_kernels_compute_nothing(run: Run) -> None:
    ended = run("unknown.py", "kernel", EMULATOR_RESULTS="0")
    assert (ended.status, ended.output) == (0, "went on\n")
