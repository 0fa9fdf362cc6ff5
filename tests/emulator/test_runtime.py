"""The emulated GPU's CUDA runtime against the C programs ``programs/runtime_*.c``, plainly and under sanitizers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.emulator.harness import stub_environment
from tests.emulator.test_driver import OPTIONS, VARIANTS, linked, runs
from tests.libraries import build_runtimes, runtimes
from tools.emulator.build import RUNTIMES, exports

FOLDER = Path(__file__).parent / "programs"
#: With the version of the runtime that they are for.
PROGRAMS = [*((source, 13) for source in sorted(FOLDER.glob("runtime_*.c"))), (FOLDER / "runtime12.c", 12)]
EXPORTED = {12: 86, 13: 109}


@pytest.fixture(scope="module", params=VARIANTS, ids=["plain", "sanitized"])
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str | None, Path]:
    """How the driver and the runtimes are built, and the folder that they are in."""
    if request.param is None:
        return None, runtimes()
    directory = tmp_path_factory.mktemp("runtime")
    build_runtimes(directory, request.param)
    return request.param, directory


@pytest.mark.parametrize(("source", "version"), PROGRAMS, ids=[source.stem for source, _ in PROGRAMS])
def test_program(source: Path, version: int, variant: tuple[str | None, Path], tmp_path: Path) -> None:
    sanitize, libraries = variant
    driver = libraries / "libcuda.so.1"
    used = [libraries / f"libcudart.so.{version}", driver]
    program = linked(source, used, sanitize, tmp_path, f"-DEMULATED_RUNTIME={version}")
    runs(program, stub_environment(driver, tmp_path / "state", "64MiB,64MiB", **OPTIONS))


def names_of(symbols: str, marker: str) -> set[str]:
    return {name.split("@")[0] for name in symbols.split() if marker in name}


@pytest.mark.parametrize("version", RUNTIMES)
def test_it_exports_the_list_under_its_version(version: int, variant: tuple[str | None, Path]) -> None:
    listed = set(re.findall(r"^    (\w+);$", exports(version).read_text(), re.MULTILINE))
    name = f"libcudart.so.{version}"
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", variant[1] / name], capture_output=True, text=True, check=True
    ).stdout
    assert names_of(symbols, f"@@{name}") == listed
    assert len(listed) == EXPORTED[version]
