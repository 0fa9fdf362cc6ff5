"""The two 60-task traces of CARMA's evaluation on 3 devices of 40 GB under every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.reproduce.carma_csv import persistent_share, read_carma
from benchmarks.reproduce.philly import rows_of
from benchmarks.reproduce.runs import Data, figures, in_lanes, no_reservations, on_devices
from carpool.core.model import GIB
from carpool.sim.generators.workloads import millionths
from carpool.sim.job import TraceJob

TRACES = ("carma_t1", "carma_t2")
DEVICES = 3
MEMORY = 40 * GIB
LANE_POLICIES = ("fifo", "srtf", "fair", "pack")
UTILIZATIONS = (0.75, 0.5)


def run(directory: Path) -> Data:
    share = persistent_share()
    return {
        "persistent_share": round(share, 3),
        "traces": {name: _trace(directory / f"{name}.csv", share) for name in TRACES},
    }


def _trace(path: Path, share: float) -> Data:
    jobs = read_carma(path, share)
    single = [job for job in jobs if job.gpus == 1]
    lanes = {f"lanes, {policy}": _lanes(single, policy) for policy in LANE_POLICIES}
    lanes |= {
        f"lanes, pack, if a task alone uses {used:g}": _lanes(_using(single, used), "pack") for used in UTILIZATIONS
    }
    lanes["lanes, pack, all memory persistent"] = _lanes([_all_persistent(job) for job in single], "pack")
    alone = {
        f"whole devices, {name}": row for name, row in on_devices(single, DEVICES).items() if name in LANE_POLICIES
    }
    return {"jobs": len(jobs), "single": len(single), "whole": on_devices(jobs, DEVICES), "single_runs": alone | lanes}


def _using(jobs: Sequence[TraceJob], share: float) -> list[TraceJob]:
    return [replace(job, utilization_ppm=millionths(share)) for job in jobs]


def _all_persistent(job: TraceJob) -> TraceJob:
    """Nothing to share between turns."""
    return replace(job, persistent=job.persistent + job.ephemeral, ephemeral=0)


def _lanes(jobs: Sequence[TraceJob], policy: str) -> Data:
    return figures(in_lanes(jobs, no_reservations(policy), DEVICES, MEMORY))


def tables(data: Data) -> dict[str, str]:
    """``data`` may be empty: then the tables say so."""
    names = {name: name.replace("_", "-") for name in TRACES}
    if not data:
        text = "Not run: no directory with carma_t1.csv and carma_t2.csv was given."
        return {f"{short}-{kind}": text for short in names.values() for kind in ("whole", "lanes")}
    found = {}
    for name, short in names.items():
        found[f"{short}-whole"] = rows_of(data["traces"][name]["whole"])
        found[f"{short}-lanes"] = rows_of(data["traces"][name]["single_runs"])
    return found
