"""Nanoseconds for the launch of a small kernel, median: ``launches.py``."""

from __future__ import annotations

import statistics
import time

import torch

RUNS, EACH = 21, 500  # fewer than a stream takes before a launch waits


def main() -> None:
    counter = torch.zeros(1, device="cuda")
    times = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(EACH):
            counter.add_(1)
        times.append((time.perf_counter_ns() - begin) / EACH)
    torch.cuda.synchronize()
    print(statistics.median(times))


if __name__ == "__main__":
    main()
