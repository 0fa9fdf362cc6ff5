"""One scheduling decision with 10, 100 and 1,000 jobs under each policy: runs ``bench_core.py``, which measures."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.figures import Figure, measured_once

EVENTS = {"turn": "hand-over of a turn", "submit": "submission to a full device", "end": "end that starts the next job"}


def run(quick: bool) -> list[Figure]:
    runs, decisions = (2, 400) if quick else (5, 2000)
    command = [sys.executable, "-m", "benchmarks.bench_core", "--runs", str(runs), "--decisions", str(decisions)]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["results"]
    return [
        measured_once(
            "decision",
            f"{label}, {row['policy']}, {row['jobs']:,} jobs, p50",
            "us",
            row[event]["p50_us"],
            target=row["target_us"],
            p99_us=row[event]["p99_us"],
        )
        for row in rows
        for event, label in EVENTS.items()
    ]
