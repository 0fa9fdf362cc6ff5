"""How far the simulator is from a live daemon: real jobs under each policy, beside what a journal of `fifo` predicts.

The jobs of the demo run live under every policy, and under `fair` on two devices.  The journal of the run under `fifo`
on one becomes a trace, and the simulator says what each policy would have made of it, without being told memory or
lengths, as the daemon was not.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Figure, median_figure
from benchmarks.five_policies.shared import run_shared
from carpool.core.model import MIB, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options, suggested_telemetry_us
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob
from carpool.sim.traces.journal import read_journal

#: Policy and number of devices, by the name of the run; the first one's journal is the trace.
RUNS_OF = {
    "fifo": ("fifo", 1),
    "srtf": ("srtf", 1),
    "fair": ("fair", 1),
    "pack": ("pack", 1),
    "fair, 2 devices": ("fair", 2),
}
CAPACITY = 192 * MIB
RUNS = 3


def run(quick: bool) -> list[Figure]:
    rounds = [_round(0.3 if quick else 1.0) for _ in range(1 if quick else RUNS)]
    figures = []
    for run_name in RUNS_OF:
        for what in ("mean_jct", "makespan"):
            ratios = [live[run_name][what][1] / live[run_name][what][0] for live in rounds]
            detail = {
                "live_s": statistics.median(live[run_name][what][0] for live in rounds),
                "predicted_s": statistics.median(live[run_name][what][1] for live in rounds),
            }
            name = f"{run_name}: {what.replace('_', ' ')}, predicted from the journal of fifo / live"
            figures.append(median_figure("fidelity", name, "ratio", ratios, detail=detail))
    return figures


def _round(scale: float) -> dict[str, dict[str, tuple[float, float]]]:
    """For each run, mean completion time and makespan: live, and predicted; seconds."""
    with tempfile.TemporaryDirectory(prefix="cp-fidelity-") as directory:
        homes = {name: Path(directory) / str(number) for number, name in enumerate(RUNS_OF)}
        for name, (policy, devices) in RUNS_OF.items():
            homes[name].mkdir()
            run_shared(homes[name], policy, CAPACITY, scale, lambda text: None, devices)
        trace, _ = read_journal(homes["fifo"] / "home")
        found = {}
        for name, (policy, devices) in RUNS_OF.items():
            live = _live(homes[name] / "home")
            predicted = _predicted(trace, policy, devices)
            found[name] = {
                "mean_jct": (statistics.mean(jct for jct, _ in live), statistics.mean(jct for jct, _ in predicted)),
                "makespan": (max(end for _, end in live), max(end for _, end in predicted)),
            }
        return found


def _live(home: Path) -> list[tuple[float, float]]:
    """Completion time, and end after the first submission, of each job in seconds."""
    with closing(sqlite3.connect(home / "journal.sqlite")) as connection:
        rows = connection.execute("SELECT submitted_us, ended_us FROM jobs ORDER BY id").fetchall()
    first = min(submitted for submitted, _ in rows)
    return [((ended - submitted) / 1e6, (ended - first) / 1e6) for submitted, ended in rows]


def _predicted(trace: list[TraceJob], policy: str, devices: int) -> list[tuple[float, float]]:
    """Each job computes with one thread: alone it uses one core of the host device."""
    share = WHOLE_PPM // (os.cpu_count() or 1)
    jobs = [replace(job, utilization_ppm=share) for job in trace]
    settings = Settings(policy=policy)
    options = Options(
        devices,
        settings,
        CAPACITY,
        declare_memory=False,
        declare_duration=False,
        telemetry_us=suggested_telemetry_us(settings, devices),
    )
    return [(job.jct_us / 1e6, job.ended_us / 1e6) for job in simulate(jobs, options).jobs]
