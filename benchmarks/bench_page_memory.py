"""The memory of a tab that stays open on the timeline while jobs take turns: an hour, or ``CARPOOL_ROUNDS`` minutes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.figures import Figure, Skipped, measured_once, median_figure, rounds_of
from tools.demo.jobs import ROOT

MINUTES = 60
#: What is kept (answers, blocks of turns that are not in an answer yet) has reached its size after this part.
SETTLED = 0.25


def run(quick: bool) -> list[Figure]:
    minutes = 2 if quick else rounds_of(MINUTES)
    command = [sys.executable, "-m", "tests.dashboard.browser.open_tab", str(minutes)]
    found = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)
    if "lacking" in found:
        raise Skipped(found["lacking"])
    heaps = [float(size) for size in found["heap_bytes"]]
    settled = heaps[round(SETTLED * len(heaps)) :]
    third = max(1, len(settled) // 3)
    growth = statistics.median(settled[-third:]) / statistics.median(settled[:third])
    about = f"timeline open for {minutes} min"
    detail = {"heap_bytes": found["heap_bytes"]}
    return [
        median_figure("page memory", f"{about}: JavaScript heap after a collection", "B", settled, detail=detail),
        measured_once("page memory", f"{about}: heap, last third / first third", "ratio", growth, target=1.05),
        measured_once("page memory", f"{about}: messages of the server", "1", float(found["messages"])),
    ]
