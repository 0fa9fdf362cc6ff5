"""Several NCCLs in one process: each caller reaches the one that it reaches without the library."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.native.arbiter import LIBRARY

SOURCES = Path(__file__).with_name("nccl")
#: More than have wrappers of their own.
LIBRARIES = 7


def compiled(output: Path, *arguments: str | Path) -> Path:
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-Wl,--no-as-needed", *arguments, "-o", output], check=True)
    return output


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plugins with an NCCL each, a program without one, and a program that is linked with the first."""
    place = tmp_path_factory.mktemp("nccl")
    shared, caller = ("-shared", "-fPIC"), SOURCES / "caller.c"
    for number in range(LIBRARIES):
        nccl = compiled(place / f"libnccl{number}.so", *shared, f'-DWHO="{number}"', SOURCES / "nccl.c")
        needed = (nccl, f"-Wl,-rpath,{place}")
        compiled(place / f"libplugin{number}.so", *shared, "-DPLUGIN", caller, *needed)
    compiled(place / "alone", "-DALONE", caller)
    compiled(place / "linked", caller, place / "libnccl0.so", f"-Wl,-rpath,{place}")
    return place


def said(program: Path, plugins: Sequence[int], **variables: str) -> list[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "LD_"))}
    command = [program, *(program.parent / f"libplugin{number}.so" for number in plugins)]
    done = subprocess.run(command, env=plain | variables, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("plugins", [(0, 1), range(LIBRARIES)], ids=["two", "more than have wrappers"])
@pytest.mark.parametrize("program", ["alone", "linked"])
def test_each_caller_reaches_the_nccl_that_it_reaches_without_the_library(
    place: Path, program: str, plugins: Sequence[int]
) -> None:
    bare = said(place / program, plugins)
    assert said(place / program, plugins, LD_PRELOAD=str(LIBRARY)) == bare
    assert {"0: 1 of 2, 7", "1: 0 of 2, 7"} <= set(bare)
