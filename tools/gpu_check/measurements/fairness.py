"""Three equal jobs that arrive one after another (Salus, figure 9): who gets how much of the device."""

from __future__ import annotations

import json

from benchmarks.arrivals import spaced
from benchmarks.shares import iterations_within, phases, worst_share
from tools.gpu_check.daemon import DEFAULT_TURNS, daemon
from tools.gpu_check.registry import Figures, Needs, measure, require
from tools.gpu_check.scripts import needs_cuda

JOBS, SPACING_S, BRIEF_S = 3, 15.0, 4.0


@measure("fairness: three equal jobs, 15 s apart, the furthest from an equal share (0.05: 5 %)", Needs.TORCH)
def fairness() -> Figures:
    return _fairness("resnet50", SPACING_S)


@measure("fairness of launch-bound jobs, 4 s apart, the furthest from an equal share", Needs.TORCH)
def fairness_in_brief() -> Figures:
    return _fairness("mlp", BRIEF_S)


def _fairness(model: str, spacing_s: float) -> Figures:
    """By iterations, which are equal, from each job's first to the next one's, and so on until all have left."""
    needs_cuda()
    with daemon("", **DEFAULT_TURNS, max_lanes=1) as shared:
        seconds = str(JOBS * spacing_s)
        jobs = spaced(lambda: shared.submit("iterations.py", model, seconds), JOBS, spacing_s)
        ends = [json.loads(shared.output(job))["ends"] for job in jobs]
    figures: Figures = {}
    for phase, (begin, end, there) in enumerate(phases(ends), 1):
        if len(there) > 1:
            share = worst_share([iterations_within(ends[number], begin, end) for number in there])
            figures[f"phase {phase}, {len(there)} jobs for {end - begin:.1f} s"] = share
    require(len(figures) > 1, "they never shared the device")
    return figures
