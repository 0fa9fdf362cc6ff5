"""Machines with a stub driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.live import python_path


@pytest.fixture
def stub_machine(root: Path, stub_driver: Path, tmp_path: Path) -> dict[str, str]:
    """Variables of processes on a stub driver of their own."""
    machine = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    stub = {"EMULATOR_STATE": str(tmp_path / "stub"), "EMULATOR_DEVICES": "512MiB"}
    paths = {"LD_LIBRARY_PATH": str(stub_driver.parent), "PYTHONPATH": python_path(root / "src")}
    return {**machine, **paths, **stub}
