"""Hand-over of a turn between two busy jobs without residue, against a bare futex wake between two processes."""

from __future__ import annotations

from benchmarks.figures import Figure, median_figure
from benchmarks.programs import run_program

LIMITS_US = {"p50_us": 100.0, "p99_us": 1000.0}
RATIO = 1.5


def run(quick: bool) -> list[Figure]:
    """From the decision to let go to the first instruction of the next job on its memory."""
    results = [run_program("handover", 600 if quick else 3000) for _ in range(2 if quick else 5)]
    figures = []
    for quantile, limit in LIMITS_US.items():
        ours = [result["hand_over"][quantile] for result in results]
        bare = [result["bare_futex"][quantile] for result in results]
        label = quantile.removesuffix("_us")
        figures.append(median_figure("hand-over", f"{label}", "us", ours, target=limit))
        ratios = [mine / other for mine, other in zip(ours, bare, strict=True)]
        detail = {"bare_us": bare, "carpool_us": ours}
        name = f"{label}, Carpool / bare futex wake"
        figures.append(median_figure("hand-over", name, "ratio", ratios, target=RATIO, detail=detail))
    return figures
