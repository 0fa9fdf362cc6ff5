"""The two 60-task traces of CARMA's evaluation on 3 devices of 40 GB: whole devices, and every way of collocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.reproduce.carma_bounds import AS_ASSUMED, bounds, bounds_table
from benchmarks.reproduce.carma_csv import (
    HEAVY,
    LIGHT,
    MEDIUM,
    Estimates,
    assumed_utilization,
    persistent_share,
    read_carma,
    read_estimates,
)
from benchmarks.reproduce.carma_factors import FACTORS
from benchmarks.reproduce.carma_ways import DEVICES, ESTIMATORS, MEMORY, PLACEMENTS, Way, ways
from benchmarks.reproduce.carma_ways import run as run_way
from benchmarks.reproduce.markdown import table
from benchmarks.reproduce.paper import CARMA_MAKESPAN
from benchmarks.reproduce.philly import rows_of
from benchmarks.reproduce.runs import Data, on_devices
from carpool.sim.generators.parameters import millionths
from carpool.sim.model.trace_job import TraceJob

TRACES = ("carma_t1", "carma_t2")
CATALOGUE = "workload_catalogue.csv"
PARTS = ("whole", "matrix", "details", "bounds", "factors", "sensitivity")
#: The placement of the rows that show what an assumption changes, and the systems in them.
PLACEMENT = "magm"
VARIED = ("CARMA", "Carpool, pack")
#: Placements and estimators under which each system is simulated.  `fair` has one lane per device, so there is little
#: to place, and memory by grant takes long to simulate where much of it moves.
SHARED = tuple(name for name in PLACEMENTS if name != "exclusive")
SHOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "CARMA": (SHARED, ESTIMATORS),
    "Carpool, pack": (SHARED, ("none", "oracle", "gpumemnet")),
    "Carpool, fair": ((PLACEMENT,), ("none", "oracle")),
}
UTILIZATIONS = (0.5, 0.75, 1.0)
LOSSES = (0.05, 0.1)
Case = tuple[Sequence[TraceJob], Way, str, str, int, int]  # as `carma_ways.run` takes it
Key = tuple[str, ...]  # where its figures go
COLUMNS = {
    "makespan": "makespan, min",
    "ratio": "of exclusive",
    "waiting": "mean waiting, min",
    "execution": "mean execution, min",
    "jct": "mean JCT, min",
    "p95": "95th percentile of JCT, min",
    "out_of_memory": "out of memory",
    "lost": "tasks lost",
    "device_hours": "device-hours",
}


def catalogue(directory: Path) -> Path:
    """Beside the traces, or in a directory ``carma`` beside theirs."""
    beside = directory / CATALOGUE
    return beside if beside.exists() else directory.parent / "carma" / CATALOGUE


def run(directory: Path) -> Data:
    share = persistent_share()
    estimates = read_estimates(catalogue(directory))
    return {
        "persistent_share": round(share, 3),
        "utilizations": {"light": LIGHT, "medium": MEDIUM, "heavy": HEAVY},
        "traces": {name: _trace(directory / f"{name}.csv", share, estimates) for name in TRACES},
    }


def _trace(path: Path, share: float, estimates: Estimates) -> Data:
    plain = read_carma(path, share, estimates)
    jobs = [_using(job, assumed_utilization(job.model)) for job in plain]
    cases = _placements(jobs) | _sensitivity(jobs) | _factors(jobs)
    with ProcessPoolExecutor() as pool:  # several simulations at once; each gives the same figures, wherever it runs
        found = dict(zip(cases, pool.map(_simulated, cases.values()), strict=True))
    return {
        "jobs": len(jobs),
        "whole": on_devices(plain, DEVICES),
        "exclusive": found["sensitivity", AS_ASSUMED, "exclusive"],
        "bounds": {name: bounds(varied) for name, varied in _by_utilization(jobs).items()},
        "ways": _nested(found, "ways"),
        "sensitivity": _nested(found, "sensitivity"),
        "factors": _nested(found, "factors"),
    }


def _using(job: TraceJob, share: float) -> TraceJob:
    return replace(job, utilization_ppm=millionths(share))


def _simulated(case: Case) -> Data:
    return run_way(*case)


def _placements(jobs: Sequence[TraceJob]) -> dict[Key, Case]:
    return {
        ("ways", name, placement, estimator): (jobs, way, placement, estimator, 0, MEMORY)
        for name, way in ways().items()
        for placement in SHOWN[name][0]
        for estimator in SHOWN[name][1]
    }


def _sensitivity(jobs: Sequence[TraceJob]) -> dict[Key, Case]:
    """Of what is assumed: how much of a device a task uses, and what tasks cost each other beyond that."""
    traces = {name: (varied, 0) for name, varied in _by_utilization(jobs).items()}
    traces |= {f"each further task costs {loss:.0%}": (jobs, millionths(loss)) for loss in LOSSES}
    found: dict[Key, Case] = {}
    for name, (trace, loss_ppm) in traces.items():
        found["sensitivity", name, "exclusive"] = (trace, ways()["CARMA"], "exclusive", "none", loss_ppm, MEMORY)
        for way in VARIED:
            found["sensitivity", name, way] = (trace, ways()[way], PLACEMENT, "oracle", loss_ppm, MEMORY)
    return found


def _factors(jobs: Sequence[TraceJob]) -> dict[Key, Case]:
    """What holds each system back: one thing at a time is taken away."""
    return {
        ("factors", name, way): (
            factor.tasks(jobs), factor.applied(ways()[way]), PLACEMENT, "oracle", 0, factor.memory
        )
        for name, factor in FACTORS.items()
        for way in VARIED
    }  # fmt: skip


def _by_utilization(jobs: Sequence[TraceJob]) -> dict[str, Sequence[TraceJob]]:
    """The tasks with what is assumed of their use of a device, and with the same for all."""
    return {AS_ASSUMED: jobs} | {
        f"every task uses {used:g}": [_using(job, used) for job in jobs] for used in UTILIZATIONS
    }


def _nested(found: Mapping[Key, Data], part: str) -> Data:
    """Those of a part, by the rest of their keys."""
    made: Data = {}
    for (first, *middle, last), row in found.items():
        if first == part:
            inner = made
            for name in middle:
                inner = inner.setdefault(name, {})
            inner[last] = row
    return made


# Tables


def tables(data: Data) -> dict[str, str]:
    """``data`` may be empty: then the tables say so."""
    names = {name: name.replace("_", "-") for name in TRACES}
    if not data:
        text = f"Not run: no directory with {', '.join(f'{name}.csv' for name in TRACES)} and {CATALOGUE} was given."
        return {f"{short}-{kind}": text for short in names.values() for kind in PARTS}
    found = {}
    for name, short in names.items():
        trace = data["traces"][name]
        found[f"{short}-whole"] = rows_of(trace["whole"])
        found[f"{short}-matrix"] = _matrix(trace)
        found[f"{short}-details"] = _details(trace)
        found[f"{short}-bounds"] = bounds_table(trace)
        found[f"{short}-factors"] = _varied_table(trace["factors"], trace["exclusive"])
        found[f"{short}-sensitivity"] = _sensitivity_table(trace)
    return found


def _ratio(row: Data, exclusive: Data) -> str:
    return f"{row['makespan'] / exclusive['makespan']:.2f}"


def _matrix(trace: Data) -> str:
    """Makespan over exclusive; in parentheses how often memory ran out, and lost tasks."""
    exclusive = trace["exclusive"]
    rows = []
    for way, placements in trace["ways"].items():
        for placement, estimators in placements.items():
            cells = (_cell(estimators[name], exclusive) if name in estimators else "" for name in ESTIMATORS)
            rows.append((way, placement, *cells))
    return table(("", "placement", *ESTIMATORS), rows)


def _cell(row: Data, exclusive: Data) -> str:
    lost = f", {row['lost']} lost" if row["lost"] else ""
    return f"{_ratio(row, exclusive)} ({row['out_of_memory']}{lost})"


def _details(trace: Data) -> str:
    exclusive = trace["exclusive"]
    rows: list[tuple[object, ...]] = [("CARMA's paper, best against exclusive", "", CARMA_MAKESPAN, *[""] * 7)]
    rows.append(("exclusive", *_figures(exclusive, exclusive)))
    for way, placements in trace["ways"].items():
        best = min(placements, key=lambda name: min(row["makespan"] for row in placements[name].values()))
        for placement in dict.fromkeys((PLACEMENT, best)):
            for estimator, row in placements[placement].items():
                rows.append((f"{way}: {placement}, {estimator}", *_figures(row, exclusive)))
    return table(("", *COLUMNS.values()), rows)


def _figures(row: Data, exclusive: Data) -> tuple[object, ...]:
    shown = {**row, "ratio": _ratio(row, exclusive)}
    return tuple(f"{shown[key]:,.1f}" if isinstance(shown[key], float) else shown[key] for key in COLUMNS)


def _varied_table(cases: Data, exclusive: Data) -> str:
    rows = [(case, *(_cell(found[name], exclusive) for name in VARIED)) for case, found in cases.items()]
    return table(("", *VARIED), rows)


def _sensitivity_table(trace: Data) -> str:
    cases = trace["sensitivity"]
    names = [name for name in next(iter(cases.values())) if name != "exclusive"]
    rows = [
        (case, f"{found['exclusive']['makespan']:,.1f}", *(_cell(found[name], found["exclusive"]) for name in names))
        for case, found in cases.items()
    ]
    return table(("", "exclusive, min", *names), rows)
