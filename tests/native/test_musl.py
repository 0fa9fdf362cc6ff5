"""Programs of another C library inherit LD_PRELOAD: libcarpool loads there, and steps aside."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.arbiter import LIBRARY

SOURCE = Path(__file__).with_name("musl_program.c")
#: Of a job, without the daemon: nothing of it may be looked at.
JOB = {"CARPOOL_JOB": "1", "CARPOOL_JOB_FD": "0", "CARPOOL_HOME": "/nowhere", "CARPOOL_CUDA_DEVICE": "0"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("musl-gcc") is None:
        pytest.skip("not installed: musl-gcc (Debian: musl-tools)")
    path = tmp_path_factory.mktemp("musl") / "program"
    subprocess.run(["musl-gcc", "-Wall", "-Wextra", "-Werror", "-O2", str(SOURCE), "-o", str(path)], check=True)
    return path


def run(command: list[str | Path], **variables: str) -> tuple[int, str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "LD_"))}
    done = subprocess.run(
        command, env=plain | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("variables", [{}, JOB], ids=["preloaded", "as in a job"])
@pytest.mark.parametrize("arguments", [[], ["exit", "7"], ["kill", "15"]], ids=["all", "exit", "kill"])
def test_a_program_is_as_it_is_without_the_library(
    program: Path, arguments: list[str], variables: dict[str, str]
) -> None:
    preloaded = run([program, *arguments], LD_PRELOAD=str(LIBRARY), **variables)
    assert preloaded == run([program, *arguments], **variables)
    assert preloaded[0] == {"exit": 7, "kill": -15}.get(arguments[0] if arguments else "", 0) and not preloaded[2]


def test_no_handler_no_thread_and_no_descriptor_is_left(program: Path) -> None:
    _, state, _ = run([program, "state"], LD_PRELOAD=str(LIBRARY), **JOB)
    assert {"Threads:\t1", "SigCgt:\t0000000000000000", "fd 0", "fd 1", "fd 2"} <= set(state.splitlines())
    assert "fd 3" not in state
