"""The environment that `make emulated-gpu` makes, for tests: PyTorch's CUDA build, and GPUs that are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.emulator.environment import VENV, libraries_of, variables

PYTHON = str(VENV / "bin" / "python")
#: "0" for a PyTorch whose results cannot be computed: for tests of contents, which copies move.
RESULTS = os.environ.get("EMULATOR_RESULTS", "1")


def need() -> None:
    """Fails the test where there is no such environment."""
    if not libraries_of(VENV).is_dir():
        pytest.fail(f"there is no emulated GPU in {VENV}: run `make emulated-gpu` (0.5 GB of downloads, once)")


def clean() -> dict[str, str]:
    """What programs on the CPU get, too: one thread, so that sums are added in one order."""
    kept = ("PATH", "HOME", "CARPOOL_TEST_RUN", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"OMP_NUM_THREADS": "1"}


def on_gpus(sizes: str, state: Path) -> dict[str, str]:
    """Of a program on GPUs of these sizes ("1GiB,1GiB"), whose ``state`` all of its processes share."""
    return variables(VENV, sizes, state, clean())
