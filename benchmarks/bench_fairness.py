"""Three equal jobs that arrive one after another under `fair` (Salus, figure 9): who gets how much of the device."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accounts import Accounts
from benchmarks.arrivals import spaced
from benchmarks.figures import Figure, median_figure, rounds_of
from benchmarks.jobs import argv, result_of, submit
from benchmarks.shares import iterations_within, phases, worst_share
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

JOBS, TARGET = 3, 0.05
DEVICE = "host:512MiB"


@dataclass(frozen=True, slots=True)
class Phase:
    """Between two arrivals or departures: what each job that had work got."""

    begin_s: float
    end_s: float
    device_us: list[float]
    iterations: list[float]

    @property
    def name(self) -> str:
        return f"{len(self.device_us)} jobs"


def spacing_s(quick: bool) -> float:
    """``CARPOOL_SPACING_S``: seconds between two arrivals; as in the paper without it."""
    return float(os.environ.get("CARPOOL_SPACING_S", 4 if quick else 15))


def run(quick: bool) -> list[Figure]:
    spacing = spacing_s(quick)
    rounds = [_round(spacing) for _ in range(1 if quick else rounds_of(3))]
    found: dict[str, list[Phase]] = defaultdict(list)
    for each in rounds:
        for phase in each:
            found[phase.name].append(phase)
    return [_figure(name, seen, spacing) for name, seen in sorted(found.items()) if len(seen[0].device_us) > 1]


def _round(spacing: float) -> list[Phase]:
    with (
        tempfile.TemporaryDirectory() as home,
        Session(Path(home), [DEVICE], "fair", {"max_lanes": 1}) as client,
        Accounts(Path(home)) as accounts,
    ):
        command = argv("steady.py", JOBS * spacing)
        jobs = spaced(lambda: submit(client, command), JOBS, spacing)
        ends = [_ends(client, job) for job in jobs]
    return [
        Phase(
            begin,
            end,
            [accounts.between(jobs[number], begin, end) for number in there],
            [iterations_within(ends[number], begin, end) for number in there],
        )
        for begin, end, there in phases(ends)
    ]


def _ends(client: DaemonClient, job: int) -> list[float]:
    ends: list[float] = result_of(client, job)[1]["ends"]
    return ends


def _figure(name: str, seen: list[Phase], spacing: float) -> Figure:
    device = [worst_share(phase.device_us) for phase in seen]
    detail = {
        "by_iterations": round(statistics.median(worst_share(phase.iterations) for phase in seen), 4),
        "phases_s": [round(phase.end_s - phase.begin_s, 1) for phase in seen],
        "device_s": [[round(us / 1e6, 2) for us in phase.device_us] for phase in seen],
        "spacing_s": spacing,
    }
    label = f"{name} at once: share of device time furthest from an equal one"
    return median_figure("fairness", label, "ratio", device, target=TARGET, detail=detail)
