"""The tables of the driver's functions, what libcarpool exports, and what the driver is published to have."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.native.arbiter import LIBRARY, ROOT

TABLE = ROOT / "native" / "cuda" / "functions.def"
EXPORTS = ROOT / "native" / "abi" / "exports.map"
PASSING = ROOT / "native" / "cuda" / "passing.toml"
ENTRY = re.compile(r"^CP_(WORK|ALONE|HOOK)(_PTSZ|_PTDS)?\((?:\w+, )??(cu\w+), (\d+), (\d+)", re.MULTILINE)


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


def test_no_function_is_looked_for_in_a_trap() -> None:
    """That takes stack: `native/build.py`."""
    assert "BIND_NOW" in subprocess.check_output(["readelf", "--dynamic", str(LIBRARY)], text=True)


def test_the_driver_s_names_that_are_exported_are_those_of_the_table() -> None:
    assert {name for name in exported() if re.match(r"cu[A-Z]", name)} == set(entries())
    assert len(entries()) > 150


def test_nothing_else_is_exported() -> None:
    wanted = set(re.findall(r"\b(\w+);", re.sub(r"/\*.*?\*/", "", EXPORTS.read_text())))
    assert exported() - set(entries()) <= wanted


def passing() -> list[str]:
    """Symbols that pass by decision, without the suffixes of per-thread forms."""
    return [symbol for group in tomllib.loads(PASSING.read_text())["group"] for symbol in group["functions"].split()]


def published() -> set[str]:
    """Symbols of the newest forms of all functions that the installed cuda-bindings can call."""
    found = importlib.util.find_spec("cuda.bindings")
    assert found is not None and found.origin is not None
    declarations = (Path(found.origin).parent / "_internal" / "driver.pxd").read_text()
    return set(re.findall(r"^cdef CUresult _(cu[A-Z]\w*)\(", declarations, re.MULTILINE))


def undecided(symbols: Iterable[str]) -> list[str]:
    """Those that neither table names: decide whether they submit work, take memory, or pass, and why."""
    return sorted({_of_all_streams(symbol) for symbol in symbols} - set(entries()) - set(passing()))


def _of_all_streams(symbol: str) -> str:
    return re.sub(r"_pts[zd]$|_ptds$", "", symbol)


def test_every_function_of_the_driver_has_been_decided_on() -> None:
    assert len(published()) > 500
    assert undecided(published()) == []


def test_a_function_that_nobody_has_decided_on_is_named() -> None:
    assert undecided({"cuLaunchKernel_ptsz", "cuStreamQuery_ptsz", "cuLaunchKernel_v9", "cuNew_ptds"}) == [
        "cuLaunchKernel_v9",
        "cuNew",
    ]


def test_decisions_are_made_once_with_a_reason_and_about_functions_that_exist() -> None:
    groups = tomllib.loads(PASSING.read_text())["group"]
    assert all(group.keys() == {"name", "why", "functions"} and group["why"].strip() for group in groups)
    assert sorted(passing()) == sorted(set(passing()) - set(entries()))
    ours = {_plain(symbol) for symbol in [*passing(), *entries()]}
    assert ours - {_plain(symbol) for symbol in published()} == {"cuGraphInstantiate"}  # now by another name


def _plain(symbol: str) -> str:
    return re.sub(r"_v\d$", "", _of_all_streams(symbol))


def toolkit() -> Path:
    """The vendor's headers; CUDA_HOME may name newer ones than are installed."""
    roots = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *map(str, Path("/usr/local").glob("cuda-1*"))]
    for root in roots:
        if root and (Path(root) / "include" / "cudaTypedefs.h").exists():
            return Path(root) / "include"
    pytest.skip("no CUDA toolkit here: its headers are the reference for forms and versions")


def test_every_form_in_the_vendor_s_header_has_been_decided_on() -> None:
    source = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n"
    command = ["cc", "-E", "-P", f"-I{toolkit()}", "-"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    forms = set(re.findall(r"CUresult\s+(cu[A-Z]\w*)\s*\(", text))
    assert len(forms) > 500
    assert undecided(forms) == []


def test_versions_are_those_of_the_vendor_s_header() -> None:
    headers = toolkit()
    newest = re.search(r"#define CUDA_VERSION (\d+)", (headers / "cuda.h").read_text())
    assert newest is not None
    text = "".join(path.read_text() for path in headers.glob("cuda*Typedefs.h"))
    known = set(re.findall(r"\(CUDAAPI \*PFN_(cu\w+_v\d+(?:_pts[zd]|_ptds)?)\)", text))
    there = {symbol: version for symbol, version in entries().items() if version <= int(newest[1])}
    assert [symbol for symbol, version in there.items() if _typedef(symbol, version) not in known] == []


def _typedef(symbol: str, version: int) -> str:
    """cuMemcpy_v2_ptds of 7000 is PFN_cuMemcpy_v7000_ptds."""
    match = re.fullmatch(r"(\w+?)(?:_v\d)?(_ptsz|_ptds)?", symbol)
    assert match is not None
    return f"{match[1]}_v{version}{match[2] or ''}"
