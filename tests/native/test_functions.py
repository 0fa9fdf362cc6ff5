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

TABLE = ROOT / "src" / "native" / "cuda" / "functions.def"
#: What libcarpool exports for everybody: for the runtime, and in place of libc's.
FOR_THE_RUNTIME = """
    attach join error begin_iterations step_begin step_end iteration_begin iteration_end
    live_blocks progress counters pool_scope watch_forks out_of_memory visible_devices
    groups_open groups_close groups_address groups_load groups_wait groups_stop groups_drop
    groups_shut groups_there groups_waits groups_open_on_device groups_follow groups_guard
    groups_operation groups_move weights_address
    service_place service_take service_ending service_release
"""
IN_PLACE_OF_LIBC_S = """
    posix_memalign free realloc fork dlsym dlvsym sigaction signal bsd_signal sysv_signal pthread_sigmask sigprocmask
    read write pread pread64 pwrite pwrite64 recv recvfrom send sendto sendmsg recvmsg
    readv writev preadv pwritev preadv64 pwritev64 preadv2 pwritev2 preadv64v2 pwritev64v2
    fread fwrite fread_unlocked fwrite_unlocked mlock mlock2 munlock madvise
    __read_chk __pread_chk __pread64_chk __recv_chk __recvfrom_chk __fread_chk __fread_unlocked_chk
"""
#: And only for those that are linked to the names, with the versions of `src/native/abi/exports.map`.
LINKED = {
    *(f"cudaMalloc@{version}" for version in ("CARPOOL", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13")),
    *(f"ncclCommInit{form}@CARPOOL" for form in ("Rank", "RankConfig", "RankScalable", "All")),
}
PASSING = ROOT / "src" / "native" / "cuda" / "passing.toml"
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
    """That takes stack: `src/native/build.py`."""
    assert "BIND_NOW" in subprocess.check_output(["readelf", "--dynamic", str(LIBRARY)], text=True)


def test_the_driver_s_names_that_are_exported_are_those_of_the_table_and_only_references_find_them() -> None:
    driver_s = {name for name in exported() if re.match(r"cu[A-Z]", name)}
    assert driver_s == {f"{symbol}@CARPOOL" for symbol in entries()}
    assert len(entries()) > 150


def test_nothing_else_is_exported() -> None:
    versions = {"CARPOOL", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"}
    everybody_s = {f"cp_{name}" for name in FOR_THE_RUNTIME.split()} | set(IN_PLACE_OF_LIBC_S.split())
    assert {name for name in exported() if not re.match(r"cu[A-Z]", name)} - versions == everybody_s | LINKED


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
