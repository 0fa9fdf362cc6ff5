"""1,000 jobs derived from Microsoft's Philly trace on 8 devices under every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.reproduce.markdown import table
from benchmarks.reproduce.runs import Data, figures, in_lanes, no_reservations, on_devices
from carpool.sim.generators.parameters import training
from carpool.sim.model.options import suggested_resolution_us
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.traces import read_trace

FILE = "philly_1000_jobs.csv"
DEVICES = 8
LANE_POLICIES = ("fifo", "srtf", "pack", "fair")
COLUMNS = {
    "makespan": "makespan, min",
    "queueing": "mean queueing, min",
    "jct": "mean JCT, min",
    "p95": "95th percentile of JCT, min",
    "utilization": "devices in use",
}


def run(directory: Path) -> Data:
    jobs = read_trace(directory / FILE)
    single = with_memory([job for job in jobs if job.gpus == 1])
    return {
        "jobs": len(jobs),
        "single": len(single),
        "whole": on_devices(jobs, DEVICES),
        "single_whole": on_devices(single, DEVICES),
        "single_lanes": {policy: _lanes(single, policy) for policy in LANE_POLICIES},
    }


def with_memory(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The trace names no memory: each job takes that of one of Salus's workloads, in turn."""
    models = training()
    return [
        replace(job, persistent=model.persistent, ephemeral=model.ephemeral)
        for job, model in zip(jobs, (models[place % len(models)] for place in range(len(jobs))), strict=True)
    ]


def _lanes(jobs: Sequence[TraceJob], policy: str) -> Data:
    settings = no_reservations(policy)
    resolution_us = suggested_resolution_us(jobs, settings)
    return figures(in_lanes(jobs, settings, DEVICES, resolution_us=resolution_us))


def tables(data: Data) -> dict[str, str]:
    """``data`` may be empty: then the tables say so."""
    if not data:
        text = f"Not run: no directory with {FILE} was given."
        return {"philly-whole": text, "philly-lanes": text}
    single = {f"whole devices, {name}": row for name, row in data["single_whole"].items() if name in LANE_POLICIES}
    single |= {f"lanes, {name}": row for name, row in data["single_lanes"].items()}
    return {"philly-whole": rows_of(data["whole"]), "philly-lanes": rows_of(single)}


def rows_of(runs: dict[str, Data]) -> str:
    return table(
        ("", *COLUMNS.values()), [(name, *(_cell(key, row[key]) for key in COLUMNS)) for name, row in runs.items()]
    )


def _cell(key: str, value: float) -> str:
    return f"{100 * value:.0f} %" if key == "utilization" else f"{value:,.1f}"
