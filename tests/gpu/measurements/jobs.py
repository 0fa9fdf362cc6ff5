"""What sharing costs, and what it gives: jobs of a daemon against the same scripts without it, in one run."""

from __future__ import annotations

import itertools
import json
import statistics
import time

from tests.gpu.daemon import Daemon, daemon
from tests.gpu.registry import Figures, Needs, measure
from tests.gpu.scripts import needs_cuda, run

WAYS = ("mlp", "conv", "graph")
ROUNDS = 3
ITERATIONS = "iterations.py"
#: Turns as they are by default: a switch takes at most 2 % of a turn.
DEFAULT_TURNS = {"max_switch_share_ppm": 20_000, "max_move_share_ppm": 50_000}


def spread(name: str, values: list[float]) -> Figures:
    return {f"{name}, median": statistics.median(values), f"{name}, spread": max(values) - min(values)}


def seconds(shared: Daemon, count: int, at_once: bool) -> float:
    """From the first submission to the last end."""
    begin, jobs = time.monotonic(), []
    for _ in range(count):
        jobs.append(shared.submit(ITERATIONS, "conv"))
        if not at_once:
            shared.output(jobs[-1])
    for job in jobs:
        shared.output(job)
    return time.monotonic() - begin


def throughput(lanes: int) -> Figures:
    with daemon("", **DEFAULT_TURNS, max_lanes=lanes) as shared:
        pairs = [(seconds(shared, 2, at_once=False), seconds(shared, 2, at_once=True)) for _ in range(ROUNDS)]
    return spread("throughput", [apart / together for apart, together in pairs])


@measure("iteration time of a job alone on the device / the same script without Carpool", Needs.TORCH)
def job_alone() -> Figures:
    needs_cuda()
    figures: Figures = {}
    with daemon("", **DEFAULT_TURNS) as shared:
        for way in WAYS:
            ratios = []
            for _ in range(ROUNDS):
                bare = float(run(ITERATIONS, way, preload=False))
                ratios.append(float(shared.output(shared.submit(ITERATIONS, way))) / bare)
            figures |= spread(way, ratios)
    return figures


@measure("a segment allocated and freed: memory by grant / the driver's cuMemAlloc and cuMemFree")
def segment() -> Figures:
    ratios = []
    with daemon("128MiB") as shared:
        for _ in range(ROUNDS):
            bare = float(run("segments.py", preload=False))
            ratios.append(float(shared.output(shared.submit("segments.py"))) / bare)
    return spread("ratio", ratios)


@measure("two training jobs in one lane: total time one after the other / at once", Needs.TORCH)
def two_in_one_lane() -> Figures:
    needs_cuda()
    return throughput(1)


@measure("two training jobs in two lanes (the driver slices time): one after the other / at once", Needs.TORCH)
def two_lanes() -> Figures:
    needs_cuda()
    return throughput(2)


@measure("hand-over: from the end of one job's iteration to the end of the next job's, less an iteration", Needs.TORCH)
def handover() -> Figures:
    needs_cuda()
    with daemon() as shared:
        jobs = [shared.submit("handover.py", "3000") for _ in range(2)]
        ends = sorted((end, job) for job in jobs for end in json.loads(shared.output(job)))
    steps = [(after - before, job != other) for (before, job), (after, other) in itertools.pairwise(ends)]
    iteration = statistics.median(step for step, switched in steps if not switched)
    gaps = sorted((step - iteration) / 1e3 for step, switched in steps if switched)
    return {"us, p50": statistics.median(gaps), "us, p95": gaps[len(gaps) * 95 // 100], "switches": float(len(gaps))}
