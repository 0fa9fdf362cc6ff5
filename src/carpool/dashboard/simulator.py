"""`carpool simulate` as a process of its own, and the runs that it has written, as many as a page can draw.

Requests and answers about another policy.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from carpool.protocol.api import ErrorBody, ErrorInfo

MOST_HOURS = 24 * 31


class WhatIf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs that were submitted in the last ``hours``, under another policy.  ``settings``: those that are to differ."""

    policy: str
    placement: str | None = None  # null: the present one
    settings: dict[str, int | None] = {}
    hours: Annotated[float, msgspec.Meta(gt=0, le=MOST_HOURS)] = 24.0


class WhatIfFigure(msgspec.Struct, frozen=True):
    """``value`` null: there is no job for the figure.  With a range it is the mean of the replicas."""

    value: float | None
    unit: str  # "s", "%" or ""
    text: str  # explains the figure to users
    low: float | None = None  # 5th percentile of the replicas; null: no range
    high: float | None = None  # 95th percentile


class WhatIfLane(msgspec.Struct, frozen=True):
    """``runs``: begin, end, and the job; in microseconds since the first submission, one after the other."""

    device: str
    lane: int
    runs: list[tuple[int, int, int]]


class WhatIfRun(msgspec.Struct, frozen=True):
    """The jobs under one policy, simulated."""

    policy: str
    figures: dict[str, WhatIfFigure]
    lanes: list[WhatIfLane]


class WhatIfAnswer(msgspec.Struct, frozen=True):
    """``now``: under the present policy; simulated as well, so that like is compared with like."""

    now: WhatIfRun
    then: WhatIfRun
    notes: list[str]


class WhatIfError(Exception):
    """There is no answer.  ``status``: of HTTP."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.info = status, ErrorInfo(code, message, hint)


LONGEST_NOTE = 500  # characters
#: Steps of the time shown: runs shorter than a step are drawn as one run, of the job that has most of the step.
STEPS = 1000
Run = tuple[int, int, int]


class SimulatedFigures(msgspec.Struct, frozen=True):
    """The fields of a row of `carpool simulate --json` that are used.  ``ranges``: of several simulations, by field.

    ``services``: null, or with a list ``engines``, of which the last has the figures of all; so have their ranges.
    """

    policy: str
    jobs: float
    refused: float
    avg_jct_s: float | None
    p95_jct_s: float | None
    avg_waiting_s: float | None
    makespan_s: float
    utilization: float
    jobs_per_second_simulated: float
    services: dict[str, Any] | None
    ranges: dict[str, Any] | None = None

    def figure(self, field: str, unit: str, text: str) -> WhatIfFigure:
        """Return a figure of the jobs."""
        return _figure(getattr(self, field), (self.ranges or {}).get(field), unit, text)

    def figures_of_engines(self, fields: Mapping[str, tuple[str, str, str]]) -> dict[str, WhatIfFigure]:
        """Return figures of all engines; none without engines.  ``fields``: field, unit and text, by name."""
        if self.services is None or not self.services["engines"]:
            return {}
        engines = self.services["engines"][-1]
        spans = (self.ranges or {}).get("services", {}).get("engines", [{}])[-1]
        found = ((name, field, unit, text) for name, (field, unit, text) in fields.items())
        return {name: _figure(engines[field], spans.get(field), unit, text) for name, field, unit, text in found}


def _figure(value: float | None, span: Mapping[str, float] | None, unit: str, text: str) -> WhatIfFigure:
    factor = 100 if unit == "%" else 1
    low, high = (None, None) if span is None else (span["p5"] * factor, span["p95"] * factor)
    return WhatIfFigure(None if value is None else value * factor, unit, text, low, high)


@dataclass(frozen=True, slots=True)
class Simulated:
    """``rows``: by policy, in the order of the request; ``notes``: lines of standard error."""

    rows: Sequence[SimulatedFigures]
    notes: Sequence[str]


async def simulate(arguments: Sequence[str]) -> Simulated:
    """Simulate.  Raises WhatIfError with the simulator's own text.  A cancelled call leaves no process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "carpool.cli",
        "simulate",
        "--json",
        *arguments,
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
