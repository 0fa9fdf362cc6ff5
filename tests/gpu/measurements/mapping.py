"""What extents cost: to create, to map, and to take away, by size."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import DriverDevice
from tests.gpu.registry import Figures, measure

MIB = 1 << 20
SIZES_MIB = (2, 64, 512)
RUNS = 7
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
