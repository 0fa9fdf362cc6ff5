"""Nanoseconds for a segment of PyTorch's allocator, asked for and given back, median: ``segments.py``.

What the tensor and the emptying of the cache take besides is the same with Carpool and without.
"""

from __future__ import annotations

import statistics
import time

import torch

SIZE, RUNS, EACH = 64 << 20, 11, 20  # a size that gets a segment of its own


def main() -> None:
    torch.cuda.init()
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter_ns()
        for _ in range(EACH):
            torch.empty(SIZE, dtype=torch.uint8, device="cuda")
            torch.cuda.empty_cache()
        times.append((time.perf_counter_ns() - begin) / EACH)
    print(statistics.median(times))


if __name__ == "__main__":
    main()
