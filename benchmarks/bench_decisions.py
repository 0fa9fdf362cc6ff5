"""One scheduling decision with 10, 100 and 1,000 jobs under each policy, and with eight devices under
each placement policy: runs ``bench_core.py``, which measures."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.figures import Figure, measured_once

EVENTS = {"turn": "hand-over of a turn", "submit": "submission to a full device", "end": "end that starts the next job"}


def run(quick: bool) -> list[Figure]:
    runs, decisions = (2, 400) if quick else (5, 2000)
    command = [sys.executable, "-m", "benchmarks.bench_core", "--runs", str(runs), "--decisions", str(decisions)]
    made = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [
        *(_figure("decision", event, row["policy"], row) for row in made["results"] for event in EVENTS),
        *(
            _figure("placement", event, f"{row['placement']}, {row['devices']} devices", row)
            for row in made["placements"]
            for event in ("submit", "end")
        ),
    ]


def _figure(group: str, event: str, under: str, row: dict[str, Any]) -> Figure:
    name = f"{EVENTS[event]}, {under}, {row['jobs']:,} jobs, p50"
    times = row[event]
    return measured_once(group, name, "us", times["p50_us"], target=row["target_us"], p99_us=times["p99_us"])
