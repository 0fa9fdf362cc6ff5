"""`carpool simulate` as a process of its own, and the runs that it has written, as many as a page can draw."""

from __future__ import annotations

import asyncio
import csv
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from carpool.dashboard.what_if_messages import WhatIfError, WhatIfLane
from carpool.protocol.api import ErrorBody

LONGEST_NOTE = 500  # characters
#: Steps of the time shown: runs shorter than a step are drawn as one run, of the job that has most of the step.
STEPS = 1000
Run = tuple[int, int, int]


class SimulatedFigures(msgspec.Struct, frozen=True):
    """The fields of a row of `carpool simulate --json` that are used."""

    policy: str
    jobs: int
    refused: int
    avg_jct_s: float | None
    p95_jct_s: float | None
    avg_waiting_s: float | None
    makespan_s: float
    utilization: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """``rows``: by policy, in the order of the request; ``notes``: lines of standard error."""

    rows: Sequence[SimulatedFigures]
    notes: Sequence[str]


async def simulate(arguments: Sequence[str]) -> Simulated:
    """Simulate.  Raises WhatIfError with the simulator's own text.  A cancelled call leaves no process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "carpool.cli", "simulate", "--json", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
        raise
    said = err.decode(errors="replace").splitlines()
    if process.returncode:
        raise _error(said, process.returncode)
    return Simulated(_rows(out), [line[:LONGEST_NOTE] for line in said])


def _rows(out: bytes) -> list[SimulatedFigures]:
    """Decode the rows: one policy is an object, several are a list."""
    text = out if out.lstrip().startswith(b"[") else b"[" + out + b"]"
    return msgspec.json.decode(text, type=list[SimulatedFigures])


def _error(said: Sequence[str], code: int) -> WhatIfError:
    """Return the simulator's own error, which is the last line, as a WhatIfError."""
    last = said[-1] if said else ""
    try:
        info = msgspec.json.decode(last, type=ErrorBody).error
    except msgspec.DecodeError:
        return WhatIfError(500, "simulation", f"carpool simulate ended with {code}: {last[:LONGEST_NOTE]}")
    return WhatIfError(400, info.code, info.message, info.hint)


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
