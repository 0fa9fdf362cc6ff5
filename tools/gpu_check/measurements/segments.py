"""Memory by grant against memory from the driver."""

from __future__ import annotations

from tools.gpu_check.daemon import daemon
from tools.gpu_check.measurements.iterations import ROUNDS, spread
from tools.gpu_check.registry import Figures, Needs, measure
from tools.gpu_check.scripts import needs_cuda, run


def compared(program: str, size: str) -> Figures:
    """In turns, in one run."""
    ratios = []
    with daemon(size) as shared:
        for _ in range(ROUNDS):
            bare = float(run(program, preload=False))
            ratios.append(float(shared.output(shared.submit(program))) / bare)
    return {**spread("ratio", ratios), "bare, ns": bare}


@measure("memory of a library beside PyTorch, allocated and freed: by grant / from the driver")
def other_memory() -> Figures:
    return compared("allocations.py", "128MiB")


@measure("a segment of PyTorch's allocator, asked for and given back: from the arena / cudaMalloc", Needs.TORCH)
def segment() -> Figures:
    needs_cuda()
    return compared("segments.py", "4GiB")
