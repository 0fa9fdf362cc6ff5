"""Two jobs in one lane under `fair`: throughput together, against the same jobs one after another without Carpool."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, median_figure
from benchmarks.jobs import argv, result_of, run_bare, submit
from tools.demo.session import Session

PAIRS = {"two CNNs": ("cnn", "cnn"), "a CNN and a transformer": ("cnn", "transformer")}
#: Long enough to outlast the other job's start, which takes some seconds.
ITERATIONS = {"cnn": 500, "transformer": 250}
TARGET = 0.97


def run(quick: bool) -> list[Figure]:
    figures = []
    for name, models in PAIRS.items():
        commands = [argv("train.py", model, ITERATIONS[model] // (3 if quick else 1), 5) for model in models]
        rounds = [_round(commands, shared_first=index % 2 == 1) for index in range(1 if quick else 3)]
        ratios = [apart / together for apart, together in rounds]
        detail = {
            "one_after_another_s": round(statistics.median(apart for apart, _ in rounds), 3),
            "together_s": round(statistics.median(together for _, together in rounds), 3),
        }
        label = f"{name}, throughput together / one after another"
        figures.append(median_figure("pair", label, "ratio", ratios, target=TARGET, at_least=True, detail=detail))
    return figures


def _round(commands: list[list[str]], shared_first: bool) -> tuple[float, float]:
    """Seconds of training one after another, and together.  Start-up and import are on neither side."""
    sides = {"apart": lambda: _apart(commands), "together": lambda: _together(commands)}
    results = {side: sides[side]() for side in sorted(sides, reverse=shared_first)}
    return results["apart"], results["together"]


def _apart(commands: list[list[str]]) -> float:
    results = [run_bare(command) for command in commands]
    return sum(result["end_s"] - result["begin_s"] for result in results)


def _together(commands: list[list[str]]) -> float:
    """From the first measured iteration of either job to the last: the lane is never without work in between."""
    with (
        tempfile.TemporaryDirectory() as home,
        Session(Path(home), ["host:512MiB"], "fair", {"max_lanes": 1}) as client,
    ):
        jobs = [submit(client, command) for command in commands]
        results = [result_of(client, job)[1] for job in jobs]
    return max(result["end_s"] for result in results) - min(result["begin_s"] for result in results)
