"""Which library answers for calls of the driver, for each route on which programs reach them; as JSON.

{"found": {route: {call: library}}, "drivers": the files of the driver that are loaded, "driver": its version,
"runtime": that of the CUDA runtime, "kernels": whether they compute}
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

#: By their names and by those of their symbols: launches, copies, memory.
CALLS = {
    "cuLaunchKernel": "cuLaunchKernel",
    "cuLaunchKernelEx": "cuLaunchKernelEx",
    "cuGraphLaunch": "cuGraphLaunch",
    "cuMemcpyHtoDAsync": "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async": "cuMemsetD8Async",
    "cuMemAlloc": "cuMemAlloc_v2",
    "cuMemFree": "cuMemFree_v2",
}
#: The legacy default stream, and one for each thread.
FLAGS = (0, 1, 2)
Route = Callable[[str], int]


class Found(ctypes.Structure):
    """Dl_info."""

    _fields_ = [
        (name, ctypes.c_char_p if "name" in name else ctypes.c_void_p)
        for name in ("file_name", "base", "symbol_name", "address")
    ]


def library_at(address: int) -> str:
    found = Found()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found)):
        return "nothing"
    return (found.file_name or b"").decode()


def loaded(name: str) -> list[str]:
    """Paths of the libraries of a name that this process has loaded."""
    return sorted(set(re.findall(rf"/\S*/{name}\.so[.0-9]*$", Path("/proc/self/maps").read_text(), re.MULTILINE)))


def by_symbol(library: ctypes.CDLL) -> Route:
    return lambda call: ctypes.cast(getattr(library, CALLS[call]), ctypes.c_void_p).value or 0


def by_version(function: Callable[..., int], *arguments: int) -> Route:
    """``arguments``: between the place for the address and the one for a status."""

    def route(call: str) -> int:
        address, status = ctypes.c_void_p(), ctypes.c_int()
        values = map(ctypes.c_ulonglong, arguments)
        code = function(call.encode(), ctypes.byref(address), *values, ctypes.byref(status))
        if code:
            raise SystemExit(f"{function} says {code} for {call}")
        return address.value or 0

    return route


def routes(driver: ctypes.CDLL, runtime: ctypes.CDLL, version: int) -> Iterator[tuple[str, Route]]:
    yield "symbol of the process", by_symbol(ctypes.CDLL(None))
    yield "dlsym of libcuda.so.1", by_symbol(driver)
    for flags in FLAGS:
        yield f"cuGetProcAddress_v2, flags {flags}", by_version(driver.cuGetProcAddress_v2, version, flags)
        if hasattr(runtime, "cudaGetDriverEntryPointByVersion"):
            function = runtime.cudaGetDriverEntryPointByVersion
            yield f"cudaGetDriverEntryPointByVersion, flags {flags}", by_version(function, version, flags)
        if hasattr(runtime, "cudaGetDriverEntryPoint"):
            yield f"cudaGetDriverEntryPoint, flags {flags}", by_version(runtime.cudaGetDriverEntryPoint, flags)


def version_by(function: Callable[..., int]) -> int:
    version = ctypes.c_int()
    function(ctypes.byref(version))
    return version.value


def main() -> None:
    kernels = (torch.arange(1000, device="cuda") * 2).sum().item() == 999_000
    (path,) = loaded("libcudart")
    driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(path)
    version = version_by(driver.cuDriverGetVersion)
    found = {
        name: {call: library_at(route(call)) for call in CALLS} for name, route in routes(driver, runtime, version)
    }
    result = {"found": found, "kernels": kernels, "driver": version, "drivers": loaded("libcuda")}
    print(json.dumps(result | {"runtime": version_by(runtime.cudaRuntimeGetVersion)}))


if __name__ == "__main__":
    main()
