"""The runs that the simulator has written, by lane, thinned to as many as a page can draw."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from carpool.dashboard.what_if_messages import WhatIfLane

#: Steps of the time shown: runs shorter than a step are drawn as one run, of the job that has most of the step.
STEPS = 1000
Run = tuple[int, int, int]


def read_lanes(path: Path, devices: Sequence[str]) -> list[WhatIfLane]:
    """Read lanes, sorted by device and lane.  ``devices``: names in the simulator's order.  Raises OSError."""
    lanes: dict[tuple[int, int], list[Run]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            run = _us(row["begin_s"]), _us(row["end_s"]), int(row["job_id"])
            lanes.setdefault((int(row["device"]), int(row["lane"])), []).append(run)
    step = max(1, max((run[1] for runs in lanes.values() for run in runs), default=0) // STEPS)
    return [WhatIfLane(devices[device], lane, thinned(runs, step)) for (device, lane), runs in sorted(lanes.items())]


def thinned(runs: Iterable[Run], step: int) -> list[Run]:
    """Return at most two runs for each step of ``step`` microseconds.  ``runs``: in order, not overlapping."""
    found: list[Run] = []
    times: dict[int, int] = {}  # of the jobs in the last run, if that is made of short runs
    for begin, end, job in runs:
        if end - begin >= step:
            times = {}
            found.append((begin, end, job))
        elif times and begin // step == found[-1][0] // step:
            times[job] = times.get(job, 0) + end - begin
            found[-1] = found[-1][0], end, max(times, key=times.__getitem__)
        else:
            times = {job: end - begin}
            found.append((begin, end, job))
    return found


def _us(seconds: str) -> int:
    whole, _, rest = seconds.partition(".")
    return int(whole) * 1_000_000 + int(rest)
