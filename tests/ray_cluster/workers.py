"""What runs in Ray's workers: pickled by value, so that a worker imports nothing of the tests."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def run(command: list[str], **variables: str) -> Any:
    """A script with its arguments, the first of which is the file for results; its results."""
    os.environ.update(variables)
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).parent))
    runpy.run_path(command[0], run_name="__main__")
    return json.loads(Path(command[1]).read_text())


class Runner:
    """An actor: one process for as many scripts as it is asked to run."""

    def pid(self) -> int:
        return os.getpid()

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def run(self, command: list[str], **variables: str) -> Any:
        return run(command, **variables)

    def touch(self) -> float:
        """The first use of the device."""
        import torch

        return float(torch.ones(100_000).sum())


def touched() -> int:
    """A task that uses 48 MiB of the device and drops them; the number of its process."""
    import torch

    torch.ones(12 << 20).sum()
    return os.getpid()
