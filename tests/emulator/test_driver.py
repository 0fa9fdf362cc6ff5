"""The stub driver against the C programs in ``programs/``, plainly and under both sanitizers at once."""

from __future__ import annotations

import os
import subprocess
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
VARIANTS = all_but_first([None, "address,undefined"])
#: What a context leaves behind at the end of a process is the driver's own and not looked for.
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


@pytest.fixture(scope="module", params=VARIANTS, ids=["plain", "sanitized"])
def variant(
    request: pytest.FixtureRequest, stub_driver: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str | None, Path]:
    sanitize: str | None = request.param
    return sanitize, build_driver(tmp_path_factory.mktemp("stub"), sanitize) if sanitize else stub_driver


def compiled(name: str, sanitize: str | None, library: Path, directory: Path) -> Path:
    program = directory / name
    flags = [
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-Werror",
        f"-I{NATIVE}",
        f"-I{EMULATOR}",
    ]
    sanitizer = [f"-fsanitize={sanitize}"] if sanitize else []
    source = str(HERE / "programs" / f"{name}.c")
    linking = [f"-L{library.parent}", "-l:libcuda.so.1", "-lpthread", "-o", str(program)]
    subprocess.run([os.environ.get("CC", "cc"), *flags, *sanitizer, source, *linking], check=True)
    return program


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, variant: tuple[str | None, Path], tmp_path: Path) -> None:
    sanitize, library = variant
    program = compiled(name, sanitize, library, tmp_path)
    environment = stub_environment(library, tmp_path / "state", EMULATOR_FAIL=PROGRAMS[name], **OPTIONS)
    result = subprocess.run([str(program)], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert list((tmp_path / "state" / "memory").iterdir()) == []
