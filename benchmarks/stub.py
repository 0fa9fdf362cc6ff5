"""Benchmarks on the stub driver (`tools/emulator/`): a GPU that computes nothing, so only what the CPU does counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import Skipped
from tests import libraries

LIBRARY = Path(__file__).resolve().parent.parent / "src" / "carpool" / "_native" / "libcarpool.so"


@contextmanager
def stub_driver(memory: str = "512MiB") -> Iterator[dict[str, str]]:
    """The environment of a process that has the stub driver, and the stand-in for PyTorch's allocator.

    While it lasts this process' own environment has it, too.  Raises Skipped where libcarpool has not been built.
    """
    if not LIBRARY.exists():
        raise Skipped("libcarpool has not been built: run it through `make bench`")
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        changes = {
            "LD_LIBRARY_PATH": str(libraries.driver().parent),
            "EMULATOR_STATE": str(directory / "state"),
            "EMULATOR_DEVICES": memory,
            "STAND_IN_ALLOCATOR": str(libraries.stand_ins() / libraries.STAND_INS["ALLOCATOR"]),
        }
        before = dict(os.environ)
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # names GPUs of the machine
        os.environ.update(changes)
        try:
            yield dict(os.environ)
        finally:
            os.environ.clear()
            os.environ.update(before)
