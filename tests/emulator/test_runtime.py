"""The emulated GPU's CUDA runtime against the C programs ``programs/runtime_*.c``, plainly and under sanitizers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from emulator.build import EMULATOR, EXPORTS, NATIVE, build_driver, build_runtime
from tests.emulator.harness import stub_environment
from tests.emulator.test_driver import OPTIONS, VARIANTS

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("runtime_*.c"))
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{NATIVE}", f"-I{EMULATOR}"]


@pytest.fixture(scope="module", params=VARIANTS, ids=["plain", "sanitized"])
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str | None, Path]:
    directory = tmp_path_factory.mktemp("runtime")
    build_driver(directory, request.param)
    return request.param, build_runtime(directory, request.param)


def compiled(source: Path, sanitize: str | None, library: Path, directory: Path) -> Path:
    program = directory / source.stem
    sanitizer = [f"-fsanitize={sanitize}"] if sanitize else []
    linking = [f"-L{library.parent}", "-l:libcudart.so.13", "-l:libcuda.so.1", "-lpthread", "-o", str(program)]
    command = [os.environ.get("CC", "cc"), *FLAGS, *sanitizer, str(source), *linking]
    subprocess.run(command, check=True)
    return program


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda source: source.stem)
def test_program(source: Path, variant: tuple[str | None, Path], tmp_path: Path) -> None:
    sanitize, library = variant
    program = compiled(source, sanitize, library, tmp_path)
    environment = stub_environment(library, tmp_path / "state", "64MiB,64MiB", **OPTIONS)
    result = subprocess.run([str(program)], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def names_of(symbols: str, marker: str) -> set[str]:
    return {name.split("@")[0] for name in symbols.split() if marker in name}


def test_it_exports_the_list_under_its_version(variant: tuple[str | None, Path]) -> None:
    listed = set(re.findall(r"^    (\w+);$", EXPORTS.read_text(), re.MULTILINE))
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", variant[1]], capture_output=True, text=True, check=True
    ).stdout
    assert names_of(symbols, "@@libcudart.so.13") == listed
    assert len(listed) == 102
