"""How far the simulator is from a live daemon: real jobs under each policy, beside what a journal of `fifo` predicts.

The jobs of the demo run live under every policy.  The journal of the run under `fifo` becomes a trace, and the
simulator says what each policy would have made of it, without being told memory or lengths, as the daemon was not.
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
from carpool.core.model import MIB, Settings
from carpool.sim.driver import simulate
from carpool.sim.job import WHOLE_PPM, TraceJob
from carpool.sim.options import Options
from carpool.sim.traces.journal import read_journal
from demo.shared import run_shared

POLICIES = ("fifo", "srtf", "fair", "pack")
CAPACITY = 192 * MIB
RUNS = 3


def run(quick: bool) -> list[Figure]:
    rounds = [_round(0.3 if quick else 1.0) for _ in range(1 if quick else RUNS)]
    figures = []
    for policy in POLICIES:
        for what in ("mean_jct", "makespan"):
            ratios = [live[policy][what][1] / live[policy][what][0] for live in rounds]
            detail = {
                "live_s": statistics.median(live[policy][what][0] for live in rounds),
                "predicted_s": statistics.median(live[policy][what][1] for live in rounds),
            }
            name = f"{policy}: {what.replace('_', ' ')}, predicted from the journal of fifo / live"
            figures.append(median_figure("fidelity", name, "ratio", ratios, detail=detail))
    return figures


def _round(scale: float) -> dict[str, dict[str, tuple[float, float]]]:
    """For each policy, mean completion time and makespan: live, and predicted; seconds."""
    with tempfile.TemporaryDirectory(prefix="cp-fidelity-") as directory:
        for policy in POLICIES:
            (Path(directory) / policy).mkdir()
            run_shared(Path(directory) / policy, policy, CAPACITY, scale, lambda text: None)
        trace, _ = read_journal(Path(directory) / "fifo" / "home")
        found = {}
        for policy in POLICIES:
            live = _live(Path(directory) / policy / "home")
            predicted = _predicted(trace, policy)
            found[policy] = {
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


def _predicted(trace: list[TraceJob], policy: str) -> list[tuple[float, float]]:
    """Each job computes with one thread: alone it uses one core of the host device."""
    share = WHOLE_PPM // (os.cpu_count() or 1)
    jobs = [replace(job, utilization_ppm=share) for job in trace]
    options = Options(
        settings=Settings(policy=policy), device_memory=CAPACITY, declare_memory=False, declare_duration=False
    )
    return [(job.jct_us / 1e6, job.ended_us / 1e6) for job in simulate(jobs, options).jobs]
