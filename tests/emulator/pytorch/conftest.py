"""Programs with PyTorch's CUDA build on emulated GPUs, in the environment that `make emulated-gpu` makes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import emulated
from tests.live import PATIENCE_S, python_path

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Ended:
    """How a program has ended; ``unexpected``: calls of functions that the emulated GPU does not have."""

    status: int
    output: str
    errors: str
    unexpected: list[str]

    def result(self) -> Any:
        """The last line, which is JSON, of a program that has called nothing unexpected."""
        assert self.status == 0, self.errors
        assert not self.unexpected
        return json.loads(self.output.splitlines()[-1])


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run("train.py", "cuda", EMULATOR_DEVICES="64MiB")``: a program of this folder on an emulated GPU of its own."""
    emulated.need()

    def one(program: str, *arguments: object, **more: str) -> Ended:
        calls = tmp_path / "unexpected"
        own = {"EMULATOR_UNEXPECTED": str(calls), "PYTHONPATH": python_path()}
        environment = emulated.on_gpus("1GiB", tmp_path / "gpu") | own | more
        command = [emulated.PYTHON, str(PROGRAMS / program), *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        names = calls.read_text().split() if calls.exists() else []
        return Ended(done.returncode, done.stdout, done.stderr, names)

    return one
