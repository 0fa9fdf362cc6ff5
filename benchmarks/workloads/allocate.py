"""Allocate and free tensors of one size, over and over: ``allocate.py``.  Plain PyTorch.

Prints nanoseconds per pair for each size: the median of many short bursts.
"""

from __future__ import annotations

import json
import statistics
import time

import torch

#: A few bytes (below every arena's threshold), an activation, a weight matrix, a large batch.
SIZES = {"256 B": 1 << 8, "64 KiB": 1 << 16, "1 MiB": 1 << 20, "16 MiB": 1 << 24}
PAIRS, BURSTS = 500, 40
LIVE = 2000  # blocks that stay alive meanwhile, as in a real model


def burst(size: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(PAIRS):
        torch.empty(size, dtype=torch.uint8)
    return (time.perf_counter_ns() - begin) / PAIRS


def main() -> None:
    torch.set_grad_enabled(False)
    live = [torch.empty(4096 + 64 * (index % 50), dtype=torch.uint8) for index in range(LIVE)]
    touched = torch.zeros(1 << 16)  # a job that has never touched its device holds no turn
    touched += 1
    results = {}
    for name, size in SIZES.items():
        burst(size)
        results[name] = statistics.median(burst(size) for _ in range(BURSTS))
    print(json.dumps({"ns": results, "live": len(live)}))


if __name__ == "__main__":
    main()
