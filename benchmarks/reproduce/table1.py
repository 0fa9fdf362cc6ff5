"""Salus, table 1: 100 training jobs on one device of 16 GiB under FIFO, SRTF, PACK and FAIR."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.reproduce.markdown import table
from benchmarks.reproduce.paper import SALUS_FIFO_OVER_SRTF, SALUS_PACK_GAIN, SALUS_TABLE_1
from benchmarks.reproduce.runs import SECOND, Data, figures, in_lanes, minutes, no_reservations
from benchmarks.reproduce.spread import crossing, shown, spread
from carpool.core.commands import Command, StartJob
from carpool.core.events import Event
from carpool.core.model import Micros, Settings
from carpool.sim.generators import generate
from carpool.sim.model.trace_job import TraceJob

POLICIES = tuple(SALUS_TABLE_1)
KEYS = ("makespan", "queueing", "jct", "p95")
PLACED = "placed"  # from submission to the moment at which the job gets its memory; its first turn may come later
VARIANTS = {
    "salus": "as Salus: 16 GiB, no reservations",
    "defaults": "Carpool's defaults: a job that was overtaken for 60 s gets a reservation",
    "plenty": "memory for everybody at once",
}
UTILIZATIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
SIGMAS = (0.8, 1.1, 1.4, 1.7)
#: More seeds would not move the medians of what is only a sensitivity.
SENSITIVITY_SEEDS = 20


def run(seeds: int, jobs: int = 100) -> Data:
    few = min(seeds, SENSITIVITY_SEEDS)
    return {
        "jobs": jobs,
        "seeds": seeds,
        "sensitivity_seeds": few,
        "variants": {name: _variant(name, seeds, jobs) for name in VARIANTS},
        "pack": _pack(few, jobs),
        "sigma": {f"{sigma:g}": _ratios(f"jobs={jobs},sigma={sigma}", few) for sigma in SIGMAS},
    }


def _variant(name: str, seeds: int, count: int) -> Data:
    rows = [_seed(name, generate(f"salus:jobs={count}", seed)) for seed in range(seeds)]
    keys = (*KEYS, PLACED)
    policies = {policy: {key: spread([row[policy][key] for row in rows]) for key in keys} for policy in POLICIES}
    return {"policies": policies, "ratio": spread([_ratio(row) for row in rows])}


def _seed(variant: str, jobs: Sequence[TraceJob]) -> dict[str, Data]:
    if variant == "plenty":
        jobs = [replace(job, persistent=0, ephemeral=0) for job in jobs]
    settings = Settings() if variant == "defaults" else no_reservations("fair")
    return {policy: _run(jobs, replace(settings, policy=policy)) for policy in POLICIES}


def _run(jobs: Sequence[TraceJob], settings: Settings) -> Data:
    placed: list[Micros] = []

    def watch(now: Micros, happened: Event | Command) -> None:
        if isinstance(happened, StartJob):
            placed.append(now)

    result = in_lanes(jobs, settings, witness=watch)
    delay_us = (sum(placed) - sum(job.submit_us for job in jobs)) / len(jobs)
    return figures(result) | {PLACED: minutes(delay_us / SECOND)}


def _ratio(row: dict[str, Data]) -> float:
    return row["fifo"]["jct"] / row["srtf"]["jct"]


def _ratios(parameters: str, seeds: int) -> Data:
    """How the ratio follows from the assumed spread of the lengths."""
    traces = [generate(f"salus:{parameters}", seed) for seed in range(seeds)]
    rows = [
        {policy: figures(in_lanes(jobs, no_reservations(policy))) for policy in ("fifo", "srtf")} for jobs in traces
    ]
    return spread([_ratio(row) for row in rows])


def _pack(seeds: int, count: int) -> Data:
    """PACK by the share of the device that a job uses alone, and the share at which the makespan is the paper's."""
    steps = {f"{share:g}": _packed(share, seeds, count) for share in UTILIZATIONS}
    points = [(share, -steps[f"{share:g}"]["gain"]["median"]) for share in UTILIZATIONS]
    return {"utilization": steps, "fitted": crossing(points, -SALUS_PACK_GAIN)}


def _packed(share: float, seeds: int, count: int) -> Data:
    traces = [generate(f"salus:jobs={count},utilization={share}", seed) for seed in range(seeds)]
    packed = [figures(in_lanes(jobs, no_reservations("pack"))) for jobs in traces]
    alone = [figures(in_lanes(jobs, no_reservations("fifo"))) for jobs in traces]
    gains = [one["makespan"] / other["makespan"] for one, other in zip(alone, packed, strict=True)]
    return {"gain": spread(gains)} | {key: round(statistics.median(row[key] for row in packed), 2) for key in KEYS}


# What people read


def tables(data: Data) -> dict[str, str]:
    return {
        "salus-1": _main(data["variants"]["salus"]["policies"]),
        "salus-1-variants": _variants(data["variants"]),
        "salus-1-sigma": table(
            ("spread of the lengths (sigma)", "FIFO / SRTF"),
            [(sigma, shown(ratio, 2)) for sigma, ratio in data["sigma"].items()],
        ),
        "salus-1-pack": _pack_table(data["pack"]),
    }


def _main(policies: dict[str, Data]) -> str:
    header = ("minutes", "", "makespan", "mean queueing", "until placed", "mean JCT", "95th percentile of JCT")
    rows: list[tuple[object, ...]] = []
    for policy, paper in SALUS_TABLE_1.items():
        makespan, queueing, *completion = paper
        rows.append((f"`{policy}`", "paper", makespan, queueing, "", *completion))
        keys = ("makespan", "queueing", PLACED, "jct", "p95")
        rows.append(("", "simulated", *(shown(policies[policy][key]) for key in keys)))
    return table(header, rows)


def _variants(variants: dict[str, Data]) -> str:
    header = ("", *(f"mean JCT, `{policy}`" for policy in POLICIES), "FIFO / SRTF", "lowest and highest ratio")
    paper = ("paper", *(SALUS_TABLE_1[policy][2] for policy in POLICIES), SALUS_FIFO_OVER_SRTF, "")
    return table(header, [paper, *(_variant_row(VARIANTS[name], each) for name, each in variants.items())])


def _variant_row(label: str, variant: Data) -> tuple[object, ...]:
    low, high = variant["ratio"]["range"]
    means = (f"{variant['policies'][policy]['jct']['median']:.1f}" for policy in POLICIES)
    return (label, *means, shown(variant["ratio"], 2), f"{low:.2f}, {high:.2f}")


def _pack_table(pack: Data) -> str:
    paper = ("paper", f"{SALUS_PACK_GAIN:.3f}", *SALUS_TABLE_1["pack"])
    rows = [
        (share, shown(step["gain"], 3), *(f"{step[key]:.1f}" for key in KEYS))
        for share, step in pack["utilization"].items()
    ]
    fitted = "nowhere in this range" if pack["fitted"] is None else f"{pack['fitted']:.2f}"
    header = ("a job alone uses", "makespan FIFO / PACK", "makespan", "mean queueing", "mean JCT", "95th percentile")
    return table(header, [paper, *rows]) + f"\n\nThe paper's makespan is reached at: {fitted}."
