"""Allocate and free through ``torch.empty``: PyTorch's default allocator, libcarpool present, and inside a job."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, median_figure
from benchmarks.jobs import argv, run_bare, run_shared
from benchmarks.workloads.allocate import SIZES
from carpool.runtime.native import library_path
from tools.demo.session import Session

TARGET = 1.0


def run(quick: bool) -> list[Figure]:
    command = argv("allocate.py")
    sides: dict[str, list[dict[str, float]]] = {"bare": [], "present": [], "job": []}
    with tempfile.TemporaryDirectory() as home, Session(Path(home), ["host:512MiB"], "fair") as client:
        for _ in range(2 if quick else 5):
            sides["bare"].append(run_bare(command)["ns"])
            sides["present"].append(run_bare(command, preload=library_path())["ns"])
            sides["job"].append(run_shared(client, command)["ns"])
    return [_figure(size, side, sides) for size in SIZES for side in ("present", "job")]


def _figure(size: str, side: str, sides: dict[str, list[dict[str, float]]]) -> Figure:
    ratios = [ours[size] / bare[size] for ours, bare in zip(sides[side], sides["bare"], strict=True)]
    detail = {f"{name}_ns": round(statistics.median(run[size] for run in sides[name])) for name in ("bare", side)}
    label = {"present": "libcarpool loaded, not attached", "job": "in a job"}[side]
    name = f"torch.empty + free of {size}, {label} / default"
    return median_figure("allocate", name, "ratio", ratios, target=TARGET, detail=detail)
