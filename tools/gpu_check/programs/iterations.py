"""Trains a model of the benchmarks: ``iterations.py MODEL[-graph] [SECONDS [DEVICE [BATCH]]]``.

Prints the median of an iteration in microseconds and when each iteration had ended, in seconds of the machine's
monotonic clock, as JSON.  ``-graph``: the whole iteration is one CUDA graph.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from meeting import meet
from models import MODELS, Training

WARM = 10


def captured(workload: Training) -> Callable[[], None]:
    """Not yet run on a GPU."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            workload.iteration()
    torch.cuda.current_stream().wait_stream(side)
    workload.optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        workload.iteration()
    return graph.replay


def ends(step: Callable[[], object], seconds: float, finish: Callable[[], None]) -> list[float]:
    """At least two, so that there is a time between them."""
    for _ in range(WARM):
        step()
    finish()
    meet()
    marks = [time.monotonic()]
    while len(marks) < 2 or marks[-1] - marks[0] < seconds:
        step()
        finish()
        marks.append(time.monotonic())
    return marks


def main(way: str, seconds: str = "8", kind: str = "cuda", batch: str = "") -> None:
    torch.manual_seed(1)
    name, _, graph = way.partition("-")
    make, usual = MODELS[name]
    device = torch.device(kind)
    workload = make(device, int(batch or usual))
    step = captured(workload) if graph else workload.iteration
    marks = ends(step, float(seconds), torch.cuda.synchronize if kind == "cuda" else lambda: None)
    middle = statistics.median(after - before for before, after in itertools.pairwise(marks))
    print(json.dumps({"us": middle * 1e6, "ends": marks}))


if __name__ == "__main__":
    main(*sys.argv[1:])
