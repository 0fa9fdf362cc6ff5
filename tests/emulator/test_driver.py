"""The stub driver against the C programs in ``programs/``, plainly and under both sanitizers at once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.emulator.harness import stub_environment
from tests.tiers import all_but_first
from tools.emulator.build import EMULATOR, NATIVE, build_driver

HERE = Path(__file__).parent
PROGRAMS = {
    "memory": "",
    "streams": "",
    "capture": "",
    "names": "cuMemAlloc=2@2,cuStreamQuery=719",
    "null_work": "",
    "modules": "",
}
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{NATIVE}", f"-I{EMULATOR}"]
VARIANTS = all_but_first([None, "address,undefined"])
#: What a context leaves behind at the end of a process is the driver's own and not looked for.
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


@pytest.fixture(scope="module", params=VARIANTS, ids=["plain", "sanitized"])
def variant(
    request: pytest.FixtureRequest, stub_driver: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str | None, Path]:
    sanitize: str | None = request.param
    return sanitize, build_driver(tmp_path_factory.mktemp("stub"), sanitize) if sanitize else stub_driver


def linked(source: Path, libraries: Sequence[Path], sanitize: str | None, directory: Path, *options: str) -> Path:
    """The program, compiled, with these libraries of one folder."""
    program = directory / source.stem
    sanitizer = [f"-fsanitize={sanitize}"] if sanitize else []
    linking = [f"-L{libraries[0].parent}", *(f"-l:{library.name}" for library in libraries), "-lpthread"]
    command = [os.environ.get("CC", "cc"), *FLAGS, *options, *sanitizer, str(source), *linking, "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def runs(program: Path, environment: dict[str, str]) -> None:
    result = subprocess.run([str(program)], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, variant: tuple[str | None, Path], tmp_path: Path) -> None:
    sanitize, library = variant
    program = linked(HERE / "programs" / f"{name}.c", [library], sanitize, tmp_path)
    runs(program, stub_environment(library, tmp_path / "state", EMULATOR_FAIL=PROGRAMS[name], **OPTIONS))
    assert list((tmp_path / "state" / "memory").iterdir()) == []
