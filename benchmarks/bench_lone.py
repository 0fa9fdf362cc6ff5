"""A job alone on its device under Carpool, against bare PyTorch: the ratio of the times of an iteration."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, median_figure
from benchmarks.jobs import argv, run_bare, run_shared
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

#: model -> iterations measured; enough for a second or more each
MODELS = {"mlp": 400, "cnn": 60, "transformer": 40}
TARGET = 1.02


def run(quick: bool) -> list[Figure]:
    """Bare, Carpool, Carpool, bare, ... so that a slow minute of the machine hits both sides alike."""
    pairs = 2 if quick else 6
    with tempfile.TemporaryDirectory() as home, Session(Path(home), ["host:512MiB"], "fair") as client:
        figures = []
        for model, iterations in MODELS.items():
            command = argv("train.py", model, iterations // (4 if quick else 1), 10)
            rounds = [_pair(client, command, shared_first=pair % 2 == 1) for pair in range(pairs)]
            figures.append(_figure(model, [bare for bare, _ in rounds], [shared for _, shared in rounds]))
        return figures


def _pair(client: DaemonClient, command: list[str], shared_first: bool) -> tuple[float, float]:
    """Seconds per iteration: bare, and as a job."""
    if shared_first:
        shared = run_shared(client, command)["iteration_s"]
        return run_bare(command)["iteration_s"], shared
    bare = run_bare(command)["iteration_s"]
    return bare, run_shared(client, command)["iteration_s"]


def _figure(model: str, bare: list[float], shared: list[float]) -> Figure:
    ratios = [ours / theirs for ours, theirs in zip(shared, bare, strict=True)]
    detail = {
        "bare_ms": round(statistics.median(bare) * 1e3, 3),
        "carpool_ms": round(statistics.median(shared) * 1e3, 3),
        "ratio_of_best": round(min(shared) / min(bare), 4),
    }
    return median_figure(
        "lone job", f"iteration of {model}, Carpool / bare", "ratio", ratios, target=TARGET, detail=detail
    )
