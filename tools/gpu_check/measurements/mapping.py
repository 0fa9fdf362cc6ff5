"""What extents cost: to create, to map, and to take away, by size."""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeVar

from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import DriverDevice
from tools.gpu_check import kernels
from tools.gpu_check.registry import Figures, measure
from tools.gpu_check.worker import workers

MIB = 1 << 20
SIZES_MIB = (2, 64, 512)
RUNS = 7
SIZE, OWN_US = 64 * MIB, 20_000
T = TypeVar("T")


@measure("an extent: created and cleared, mapped, unmapped; milliseconds, median of 7")
def extent_costs() -> Figures:
    driver.start()
    gpu = DriverDevice(0)
    gpu.stream()
    figures: Figures = {}
    for size_mib in SIZES_MIB:
        size = size_mib * MIB
        if size * 2 > gpu.memory:
            continue
        runs = [_run(gpu, size) for _ in range(RUNS)]
        for place, what in enumerate(("create", "map", "unmap")):
            figures[f"{what} {size_mib} MiB, ms"] = statistics.median(run[place] for run in runs)
    return figures


@measure("an extent beside running kernels, ms, median of 7: of another process, and of this one, 20 ms long")
def extent_costs_beside_kernels() -> Figures:
    driver.start()
    gpu = DriverDevice(0)
    gpu.stream()
    with workers(1) as (other,):
        _, fd = other.ask("create", size=SIZE)
        assert fd is not None
        other.ask("map", fd, size=SIZE)
        os.close(fd)
        other.ask("count_for_ever", at=0)
        beside = [_run(gpu, SIZE) for _ in range(RUNS)]
    spin = kernels.kernel(gpu, "spin_us")
    own = [_beside_own(gpu, spin) for _ in range(RUNS)]
    names = ("create", "map", "unmap")
    return {
        f"{name} beside {whose}, ms": statistics.median(run[place] for run in runs)
        for whose, runs in (("another's", beside), ("its own", own))
        for place, name in enumerate(names)
    }


def _beside_own(gpu: DriverDevice, spin: Any) -> tuple[float, float, float]:
    """Longer than its kernel: the call waits for it."""
    stream = kernels.launch(spin, (OWN_US, ctypes.c_uint64))
    times = _run(gpu, SIZE)
    driver.call("cuStreamSynchronize", stream)
    driver.call("cuStreamDestroy", stream)
    return times


def _run(gpu: DriverDevice, size: int) -> tuple[float, float, float]:
    fd, created = _timed(lambda: gpu.create(size))
    extent, mapped = _timed(lambda: gpu.open(fd, size))
    _, unmapped = _timed(lambda: gpu.unmap(extent))
    os.close(fd)
    return created, mapped, unmapped


def _timed(action: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    result = action()
    return result, (time.perf_counter() - begin) * 1e3
