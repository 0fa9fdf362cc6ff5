"""The stub NVML in tests: its values, and pynvml led to it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pynvml

GIB = 1 << 30
#: A GPU that can do everything.
FULL: Mapping[str, object] = {
    "name": "NVIDIA H100 80GB HBM3",
    "compute.capability": "9.0",
    "memory.total": 80 * GIB,
    "memory.used": 10 * GIB,
    "memory.reserved": GIB,
    "process.compute": "",
    "utilization.gpu": 37,
    "utilization.memory": 12,
    "power.usage": 312_400,
    "power.limit": 700_000,
    "energy": 123_456_789_012,
    "temperature": 61,
    "clock.sm": 1755,
    "clock.sm.max": 1980,
    "reasons": 0x1,
    "mig.mode": 0,
    "gpm.supported": 1,
    "gpm.2": 63.5,
    "gpm.3": 41.25,
    "gpm.10": 22,
    "clock_ms": 1000,
}


class StubNvml:
    """What the stub answers, by device.  Each change is in force for the next call."""

    def __init__(self, library: Path, path: Path) -> None:
        self.library = library
        self.path = path
        self.native = ctypes.CDLL(str(library))
        self._everywhere: dict[str, object] = {}
        self._gpus: dict[str, dict[str, object]] = {}

    def gpu(self, uuid: str = "GPU-1", changes: Mapping[str, object] | None = None, **simple: object) -> str:
        """Add a GPU, or change one.  None removes a value."""
        values = self._gpus.setdefault(uuid, dict(FULL))
        _change(values, {**(changes or {}), **simple})
        self._write()
        return uuid

    def everywhere(self, changes: Mapping[str, object]) -> None:
        _change(self._everywhere, changes)
        self._write()

    def without(self, uuid: str) -> None:
        del self._gpus[uuid]
        self._write()

    def _write(self) -> None:
        lines = [f"{key}={value}" for key, value in self._everywhere.items()]
        for uuid, values in self._gpus.items():
            lines += [f"device={uuid}", *(f"{key}={value}" for key, value in values.items())]
        partial = self.path.with_suffix(".tmp")
        partial.write_text("".join(f"{line}\n" for line in lines))
        partial.rename(self.path)


def _change(values: dict[str, object], changes: Mapping[str, object]) -> None:
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


@contextmanager
def stubbed(library: Path, path: Path) -> Iterator[StubNvml]:
    """pynvml of this process uses the stub.  At the end nothing may be left open in it."""
    stub = StubNvml(library, path)
    stub.everywhere({})
    saved = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), os.environ.get("EMULATOR_NVML")
    pynvml.nvmlLib = stub.native
    pynvml._nvmlGetFunctionPointer_cache.clear()
    os.environ["EMULATOR_NVML"] = str(path)
    try:
        yield stub
        left = stub.native.stub_users(), stub.native.stub_gpm_samples()
        assert left == (0, 0), f"NVML left open and GPM samples left: {left}"
    finally:
        pynvml.nvmlLib = saved[0]
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(saved[1])
        os.environ.pop("EMULATOR_NVML", None)
        if saved[2] is not None:
            os.environ["EMULATOR_NVML"] = saved[2]
