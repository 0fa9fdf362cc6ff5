"""Ask for segments of 20 MiB as PyTorch's allocator does, give them back; on the stub driver: ``segments.py RUNS``.

Prints the median time of one, in nanoseconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time

import torch  # noqa: F401 - how a job of Carpool attaches

SIZE, EACH = 20 << 20, 50


def require(code: int) -> None:
    if code:
        raise RuntimeError(f"the driver answers {code}")


def context() -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    made = ctypes.c_void_p()
    require(driver.cuInit(0))
    require(driver.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0))
    require(driver.cuCtxSetCurrent(made))


def main(runs: int) -> None:
    context()
    allocator = ctypes.CDLL(os.environ["STAND_IN_ALLOCATOR"])
    address, size = ctypes.c_uint64(), ctypes.c_size_t(SIZE)

    def segment() -> None:
        require(allocator.segment_alloc(ctypes.byref(address), size))
        require(allocator.segment_free(address))

    segment()
    times = []
    for _ in range(runs):
        begin = time.perf_counter_ns()
        for _ in range(EACH):
            segment()
        times.append((time.perf_counter_ns() - begin) / EACH)
    print(json.dumps({"ns": statistics.median(times)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
