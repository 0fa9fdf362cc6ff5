"""The allocator's snapshot, from which live blocks are known at a switch."""

from __future__ import annotations

import statistics
import time

from tools.gpu_check.registry import Figures, Needs, measure
from tools.gpu_check.scripts import needs_cuda

BLOCKS = 1500
RUNS = 21


@measure("torch.cuda.memory_snapshot() at 1,500 live blocks, milliseconds", Needs.TORCH)
def snapshot_cost() -> Figures:
    needs_cuda()
    import torch

    kept = [torch.empty(1 << (10 + number % 11), dtype=torch.uint8, device="cuda") for number in range(2 * BLOCKS)]
    del kept[::2]
    runs = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        blocks = sum(len(segment["blocks"]) for segment in torch.cuda.memory_snapshot())
        runs.append((time.perf_counter() - begin) * 1e3)
    return {"ms, median": statistics.median(runs), "ms, longest": max(runs), "blocks": blocks}
