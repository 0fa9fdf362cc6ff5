"""The table of the driver's entry points, and what libcarpool exports."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.native.arbiter import LIBRARY, ROOT

TABLE = ROOT / "native" / "cuda" / "functions.def"
EXPORTS = ROOT / "native" / "abi" / "exports.map"
TYPEDEFS = [
    Path("/usr/local/cuda/include/cudaTypedefs.h"),
    *sorted(Path("/usr/local").glob("cuda-1*/include/cudaTypedefs.h")),
]
ENTRY = re.compile(r"^CP_(WORK|HOOK)(_PTSZ|_PTDS)?\((?:\w+, )??(cu\w+), (\d+), (\d+)", re.MULTILINE)


def entries() -> dict[str, int]:
    """Symbol -> version of the driver that brought it."""
    found: dict[str, int] = {}
    for _, suffix, symbol, version, second in ENTRY.findall(TABLE.read_text()):
        assert symbol not in found
        found[symbol] = int(version)
        if suffix:
            found[symbol + suffix.lower()] = int(second)
    return found


def exported() -> set[str]:
    output = subprocess.check_output(["nm", "-D", "--defined-only", str(LIBRARY)], text=True)
    return {line.split()[-1] for line in output.splitlines()}


def test_the_driver_s_names_that_are_exported_are_those_of_the_table() -> None:
    assert {name for name in exported() if re.match(r"cu[A-Z]", name)} == set(entries())
    assert len(entries()) > 150


def test_nothing_else_is_exported() -> None:
    wanted = set(re.findall(r"\b(\w+);", re.sub(r"/\*.*?\*/", "", EXPORTS.read_text())))
    assert exported() - set(entries()) <= wanted


def test_versions_are_those_of_the_vendor_s_header() -> None:
    header = next((path for path in TYPEDEFS if path.exists()), None)
    if header is None:
        pytest.skip("no CUDA toolkit here: cudaTypedefs.h is the reference for versions")
    known = set(re.findall(r"\(CUDAAPI \*PFN_(cu\w+_v\d+(?:_pts[zd]|_ptds)?)\)", header.read_text()))
    missing = [(symbol, version) for symbol, version in entries().items() if _typedef(symbol, version) not in known]
    assert not missing


def _typedef(symbol: str, version: int) -> str:
    """cuMemcpy_v2_ptds of 7000 is PFN_cuMemcpy_v7000_ptds."""
    match = re.fullmatch(r"(\w+?)(?:_v\d)?(_ptsz|_ptds)?", symbol)
    assert match is not None
    return f"{match[1]}_v{version}{match[2] or ''}"
