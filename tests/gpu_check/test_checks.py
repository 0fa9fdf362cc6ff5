"""The checks for real GPUs, on the stub driver as far as they need no more than that: they must run, pass, and fail.

What they show about hardware is shown on hardware only (docs/verified.md).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiers import all_but_first
from tools.gpu_check import report, runner
from tools.gpu_check.registry import Needs

CHECKS = runner.load()
#: The one that takes over memory of a killed process first; `tests/devices` has the contract of a device.
WITH_DRIVER = [name for name, each in CHECKS.items() if each.needs is Needs.DRIVER]
WITH_DRIVER.sort(key="lane_outlives_its_agent".__ne__)
#: What an emulated GPU cannot show.
NOT_SEEN_HERE = ("silence_after_a_kill",)
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(root: Path, stub_machine: dict[str, str]) -> Run:
    """``python -m tools.gpu_check`` on a stub driver of its own."""

    def start(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tools.gpu_check", *arguments],
            cwd=root,
            env=stub_machine | env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return start


@pytest.mark.parametrize("name", all_but_first(WITH_DRIVER))
def test_it_passes_on_the_stub_driver(run: Run, name: str) -> None:
    done = run("one", name)
    expected = runner.NOT_SEEN if name in NOT_SEEN_HERE else runner.PASSED
    assert json.loads(done.stdout)["outcome"] == expected, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "fault"),
    all_but_first(
        [
            ("extent_outlives_its_creator", "cuMemImportFromShareableHandle=999"),
            ("extent_is_cleared", "cuMemsetD8Async=1"),
            ("lane_in_two_processes", "cuMemSetAccess=1"),
            ("memory_of_a_killed_process", "cuMemAlloc_v2=2"),
            ("extent_is_freed", "cuMemCreate=2"),
            ("silence_after_a_kill", "cuMemsetD32Async=1"),
            ("checkpoint_round_trip", "cuCheckpointProcessCheckpoint=999"),
        ]
    ),
)
def test_it_fails_where_the_driver_does(run: Run, name: str, fault: str) -> None:
    done = run("one", name, EMULATOR_FAIL=fault)
    assert json.loads(done.stdout)["outcome"] == runner.FAILED, done.stdout


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes", stays="test_it_passes_on_the_stub_driver"
)
def test_an_image_that_cannot_be_registered_is_copied_all_the_same(run: Run) -> None:
    done = json.loads(run("one", "weights_extents", EMULATOR_FAIL="cuMemHostRegister_v2=801").stdout)
    assert (done["outcome"], done["figures"]["registering read-only refused, error, 64 MiB"]) == (runner.PASSED, 801)
    assert done["figures"]["copying 128 groups, 64 MiB"] > 0


def test_a_table_and_two_files_are_written(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    good = run("check", "--out", str(out), "extent_is_cleared")
    assert good.returncode == 0, good.stderr
    written = sorted(path.suffix for path in out.iterdir())
    assert written == [".json", ".md"]
    bad = run("check", "--out", str(out), "extent_is_cleared", EMULATOR_FAIL="cuMemCreate=2")
    assert bad.returncode == 1
    assert "CUDA_ERROR_OUT_OF_MEMORY" in bad.stdout


def test_without_a_driver_nothing_is_claimed(run: Run, tmp_path: Path) -> None:
    done = run("check", "--out", str(tmp_path / "out"), LD_LIBRARY_PATH="/nonexistent")
    assert done.returncode == 2
    assert "nothing can be checked here" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_lease_without_a_driver_says_so_in_its_file(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "out" / "results.md"
    done = run("lease", "--out", str(page.parent), "needed_mechanisms", LD_LIBRARY_PATH="/nonexistent")
    assert done.returncode == 1, done.stderr
    assert "needed_mechanisms FAILED: AssertionError: none: this machine has no NVIDIA driver" in page.read_text()


def test_an_unknown_name_is_an_error(run: Run) -> None:
    done = run("check", "everything")
    assert done.returncode == 2
    assert "extent_is_cleared" in done.stderr


def test_scripts_are_skipped_with_a_reason_where_pytorch_has_no_cuda() -> None:
    result = runner.run_here(CHECKS["preloaded_sgd"], 60)
    assert (result.outcome, result.text) == (runner.SKIPPED, "PyTorch sees no CUDA device")
    assert "PyTorch sees no CUDA device" in report.line(result)
