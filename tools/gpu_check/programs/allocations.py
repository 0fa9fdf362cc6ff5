"""Nanoseconds to allocate and free memory as libraries beside PyTorch do, median: ``allocations.py``."""

from __future__ import annotations

import statistics
import time

import torch  # noqa: F401 - how a job of Carpool attaches

from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import DriverDevice

SIZE, RUNS, EACH = 20 << 20, 11, 5


def main() -> None:
    driver.start()
    DriverDevice(0).stream()
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter_ns()
        for _ in range(EACH):
            driver.call("cuMemFree", driver.call("cuMemAlloc", SIZE))
        times.append((time.perf_counter_ns() - begin) / EACH)
    print(statistics.median(times))


if __name__ == "__main__":
    main()
