"""What the gate costs an iteration when nobody shares the device."""

from __future__ import annotations

import statistics

from tests.gpu.registry import Figures, Needs, measure
from tests.gpu.scripts import needs_cuda, run

WAYS = ("mlp", "conv", "graph")
ROUNDS = 3


@measure("iteration time with libcarpool preloaded / without, side by side (not attached to a daemon)", Needs.TORCH)
def preloaded_iterations() -> Figures:
    needs_cuda()
    figures: Figures = {}
    for way in WAYS:
        ratios = []
        for _ in range(ROUNDS):
            bare, preloaded = (float(run("iterations.py", way, preload=preload)) for preload in (False, True))
            ratios.append(preloaded / bare)
        figures |= {f"{way}, median": statistics.median(ratios), f"{way}, spread": max(ratios) - min(ratios)}
    return figures
