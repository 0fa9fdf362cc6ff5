"""Hand-over of a turn: from the last kernel of one job to the first kernel of the next, and what residue adds to it."""

from __future__ import annotations

import itertools
import json
import statistics
import time

from tools.gpu_check.daemon import daemon
from tools.gpu_check.meeting import outputs_together
from tools.gpu_check.mps import mps_server
from tools.gpu_check.registry import Figures, Needs, measure
from tools.gpu_check.scripts import needs_cuda

ITERATIONS, BLOCKS, RUNS = 3000, 1500, 21
WITH_BLOCKS = 300  # iterations, each of which takes milliseconds
STREAMS = 128
MOST_ROUNDS = 10
WARM = 50  # turns at the beginning: memory is measured, residue learned
SIZES = [1 << (10 + number % 11) for number in range(BLOCKS)]  # as in handover.py

Turn = tuple[int, int, int]  # begin and end of an iteration, and its job


def turns_of(results: dict[int, str]) -> list[Turn]:
    """In the order of time."""
    return sorted((begin, end, job) for job, output in results.items() for begin, end in json.loads(output))


def gaps_us(turns: list[Turn]) -> list[float]:
    """Ascending; between iterations of different jobs only."""
    pairs = list(itertools.pairwise(turns))[WARM:]
    return sorted((after[0] - before[1]) / 1e3 for before, after in pairs if before[2] != after[2])


def measured(iterations: int, blocks: int = 0, streams: int = 0, sharing: str = "timeslice") -> list[float]:
    """Gaps of two jobs that hand over at every iteration and begin together, microseconds.

    On a busy machine they meet less often: then they run again, until there are enough gaps.
    """
    command = ["handover.py", str(iterations), str(blocks), str(streams)]
    gaps: list[float] = []
    with daemon(sharing=sharing) as shared:
        for _ in range(MOST_ROUNDS):
            gaps += gaps_us(turns_of(outputs_together(shared, [command] * 2)))
            if len(gaps) > RUNS:
                return sorted(gaps)
    raise AssertionError(f"the jobs have changed turns {len(gaps)} times only")


def quantiles(gaps: list[float]) -> Figures:
    p95 = gaps[len(gaps) * 95 // 100]
    return {"us, p50": statistics.median(gaps), "us, p95": p95, "switches": float(len(gaps))}


@measure("hand-over, persistent memory resident, last kernel to first kernel: contexts take turns", Needs.TORCH)
def handover_timeslice() -> Figures:
    needs_cuda()
    return quantiles(measured(ITERATIONS))


@measure("hand-over with 128 streams that have had work besides, and without", Needs.TORCH)
def handover_side_streams() -> Figures:
    needs_cuda()
    beside, without = (statistics.median(measured(ITERATIONS, streams=streams)) for streams in (STREAMS, 0))
    return {"us with 128, p50": beside, "us without, p50": without, "us more": beside - without}


@measure("hand-over, persistent memory resident, last kernel to first kernel: under an MPS server", Needs.TORCH)
def handover_mps() -> Figures:
    needs_cuda()
    with mps_server():
        return quantiles(measured(ITERATIONS, sharing="mps"))


@measure("residue of 1,500 live blocks: hand-over with them less one without, less plain copies of it", Needs.TORCH)
def residue_cost() -> Figures:
    needs_cuda()
    without, blocks = (statistics.median(measured(*each)) for each in ((ITERATIONS, 0), (WITH_BLOCKS, BLOCKS)))
    copies = plain_copies_ms(sum(SIZES))
    more = (blocks - without) / 1e3
    return {
        "ms beyond the copy": more - copies,
        "ms more": more,
        "ms, plain copies there and back": copies,
        "MiB": sum(SIZES) / 2**20,
    }


def plain_copies_ms(size: int) -> float:
    """On the device, there and back: as much as a switch saves and restores."""
    import torch

    here, there = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    runs = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        there.copy_(here)
        here.copy_(there)
        torch.cuda.synchronize()
        runs.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(runs)
