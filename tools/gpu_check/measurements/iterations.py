"""What Carpool costs an iteration when nobody shares the device."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable

from tools.gpu_check.daemon import DEFAULT_TURNS, daemon
from tools.gpu_check.registry import Figures, Needs, measure
from tools.gpu_check.scripts import needs_cuda, run

MODELS = ("resnet50", "bert", "gpt", "mlp")
WAYS = tuple(f"{name}{graph}" for name, graph in itertools.product(MODELS, ("", "-graph")))
ROUNDS = 3
PROGRAM = "iterations.py"


def spread(name: str, values: list[float]) -> Figures:
    return {f"{name}, median": statistics.median(values), f"{name}, spread": max(values) - min(values)}


def bare_us(way: str, preload: bool = False) -> float:
    return float(json.loads(run(PROGRAM, way, preload=preload))["us"])


def alone(way: str) -> Callable[[], Figures]:
    def function() -> Figures:
        needs_cuda()
        ratios = []
        with daemon("", **DEFAULT_TURNS) as shared:
            for _ in range(ROUNDS):
                bare = bare_us(way)
                ratios.append(json.loads(shared.output(shared.submit(PROGRAM, way)))["us"] / bare)
        return {**spread("ratio", ratios), "bare, us": bare}

    function.__name__ = f"alone_{way.replace('-', '_')}"
    return function


for each in WAYS:
    measure(f"iteration time of a job alone on the device / the same script without Carpool: {each}", Needs.TORCH)(
        alone(each)
    )


@measure(
    "launch of a small kernel, ns: by itself, with libcarpool preloaded, as a job alone on the device", Needs.TORCH
)
def launch_overhead() -> Figures:
    needs_cuda()
    bare, preloaded = (float(run("launches.py", preload=preload)) for preload in (False, True))
    with daemon("", **DEFAULT_TURNS) as shared:
        job = float(shared.output(shared.submit("launches.py")))
    return {"bare, ns": bare, "preloaded, ns more": preloaded - bare, "as a job, ns more": job - bare}


@measure("iteration time with libcarpool preloaded / without, side by side (not attached to a daemon)", Needs.TORCH)
def preloaded_iterations() -> Figures:
    needs_cuda()
    figures: Figures = {}
    for way in ("mlp", "mlp-graph"):
        ratios = [bare_us(way, preload=True) / bare_us(way) for _ in range(ROUNDS)]
        figures |= spread(way, ratios)
    return figures
