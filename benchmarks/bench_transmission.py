"""Latency of a request whose weights are on their way, against a ready model; one thread computes, one copies."""

from __future__ import annotations

import statistics
import sys

from benchmarks.figures import Figure, median_figure, rounds_of
from benchmarks.jobs import run_bare

#: Target of the default groups; the others are there to compare.
TARGET = 1.15
START_TARGET_MS = 3.0
#: Of PipeSwitch's ablations (figures 7 to 9); pages of the host are not pinned.
WAYS = ("default", "per layer", "one group", "no pipeline", "no model store", "one process")
#: Rounds, usually and in quick runs.
MODELS = {"resnet152": (5, 2), "bert-base": (5, 2), "resnet152-small": (25, 5), "bert-base-small": (25, 5)}


def run(quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    for model, (usual, few) in MODELS.items():
        rounds = few if quick else rounds_of(usual)
        command = [sys.executable, "-m", "benchmarks.workloads.transmit", model, str(rounds)]
        figures += _figures(model, run_bare(command))
    return figures


def _figures(model: str, taken: dict[str, list[float]]) -> list[Figure]:
    """Where computing is too short to hide the copy there is no target."""
    small = model.endswith("-small")
    figures = [
        _ratio(f"{model}: {way} / ready", taken, way, "ready", TARGET if way == "default" and not small else None)
        for way in WAYS
    ]
    figures.append(_ratio(f"{model}: ready / plain PyTorch", taken, "ready", "plain", None))
    pairs = zip(taken["first group"], taken["first group, plain copy"], strict=True)
    beyond = [1000 * (first - copy) for first, copy in pairs]
    name = f"{model}: request to the first group, beyond a plain copy of it"
    detail = {"first_ms": 1000 * statistics.median(taken["first group"])}
    figures.append(median_figure("transmission", name, "ms", beyond, target=START_TARGET_MS, detail=detail))
    return figures


def _ratio(name: str, taken: dict[str, list[float]], way: str, base: str, target: float | None) -> Figure:
    ratios = [one / other for one, other in zip(taken[way], taken[base], strict=True)]
    detail = {f"{side}_ms": 1000 * statistics.median(taken[side]) for side in (way, base)}
    return median_figure("transmission", name, "ratio", ratios, target=target, detail=detail)
