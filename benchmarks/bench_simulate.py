"""How fast the simulator is: jobs per second, growth with the length of the trace, the command, lanes, memory.

The traces are made by the generators; `CARPOOL_TRACES` may name a directory with ``philly_1000_jobs.csv``, which is
then measured too.  ``python -m benchmarks.bench_simulate JOBS`` simulates so many and prints its peak of memory.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure, measured_once, median_figure
from carpool.core.model import Allocation, Settings
from carpool.sim.driver import simulate
from carpool.sim.generators import generate
from carpool.sim.model.options import Options, suggested_resolution_us
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.traces import read_trace, write_trace

DEVICES = 8
FEW_DEVICES = 2
JOBS_PER_S = {"fifo": 20_000.0, "srtf": 5_000.0}
GROWTH = {"fifo": 1.3, "srtf": 2.5}
LANE_POLICIES = ("fifo", "srtf", "pack", "fair")
LANE_JOBS_PER_S = 3_000.0
COMMAND_S = 1.0
MILLION_MIB = 2e9 / (1 << 20)
PHILLY = "philly_1000_jobs.csv"


def run(quick: bool) -> list[Figure]:
    return [
        *_speeds(2 if quick else 11),
        *_growth(10_000 if quick else 100_000, 1 if quick else 3),
        _command(2 if quick else 7),
        *_lane_speeds(2 if quick else 7),
        *_coarseness(50 if quick else 200),
        *([] if quick else [_memory(1_000_000)]),
    ]


# Traces


def philly_like(jobs: int, seed: int = 0) -> list[TraceJob]:
    """Lengths of a heavy tail and gangs, as in Microsoft's Philly trace; a load of 0.83 per device."""
    return generate(f"poisson:jobs={jobs},devices={DEVICES},load=0.83,gpus=philly", seed)


def in_lanes(jobs: int, devices: int) -> list[TraceJob]:
    """Salus's workloads, with memory; 0.8 of what the devices can do."""
    return generate(f"salus:jobs={jobs},early=0,mean_interarrival_s={3.03 * 60 / devices / 0.8:.3f}", 0)


def _given_trace() -> list[TraceJob]:
    directory = os.environ.get("CARPOOL_TRACES")
    path = Path(directory) / PHILLY if directory else None
    return read_trace(path) if path is not None and path.exists() else []


# Measurements


def on_devices(jobs: Sequence[TraceJob], policy: str) -> Result:
    gc.collect()
    return simulate(jobs, Options(DEVICES, Settings(policy=policy, allocation=Allocation.DEVICES)))


def lanes(jobs: Sequence[TraceJob], policy: str, resolution_us: int, devices: int = DEVICES) -> Result:
    gc.collect()
    return simulate(jobs, Options(devices, Settings(policy=policy), resolution_us=resolution_us))


def _speeds(runs: int) -> list[Figure]:
    traces = {"generated": philly_like(1000), "Philly's": _given_trace()}
    figures = []
    for name, jobs in traces.items():
        for policy, target in JOBS_PER_S.items() if jobs else ():
            rates = [len(jobs) / on_devices(jobs, policy).wall_s for _ in range(runs)]
            what = f"{len(jobs):,} jobs ({name}) on {DEVICES} devices, {policy}"
            figures.append(median_figure("simulate", what, "1/s", rates, target=target, at_least=True))
    return figures


def _growth(many: int, rounds: int) -> list[Figure]:
    """Time per job of a long trace over that of short ones, measured in turns.

    Short traces differ, so their side is the mean over several seeds.
    """
    short, long = [philly_like(1000, seed) for seed in range(10)], philly_like(many)
    figures = []
    for policy, target in GROWTH.items():
        pairs = [(_us_per_job(short, policy), _us_per_job([long], policy)) for _ in range(rounds)]
        detail = {"short_us_per_job": pairs[-1][0], "long_us_per_job": pairs[-1][1]}
        what = f"time per job, {many:,} jobs / 1,000 jobs, {policy}"
        ratios = [after / before for before, after in pairs]
        figures.append(median_figure("simulate", what, "ratio", ratios, target=target, detail=detail))
    return figures


def _us_per_job(traces: Sequence[Sequence[TraceJob]], policy: str) -> float:
    return statistics.mean(on_devices(jobs, policy).wall_s / len(jobs) for jobs in traces) * 1e6


def _command(runs: int) -> Figure:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "trace.csv"
        write_trace(philly_like(1000), path)
        argv = [sys.executable, "-m", "carpool.cli", "simulate", str(path), "--devices", str(DEVICES)]
        times = [_seconds([*argv, "--policy", "srtf"]) for _ in range(runs + 1)]
    return median_figure("simulate", "carpool simulate, 1,000 jobs, srtf, cold start included", "s", times[1:],
                         target=COMMAND_S)  # fmt: skip


def _seconds(argv: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(argv, env=os.environ | {"NO_COLOR": "1"}, capture_output=True, check=True)
    return time.perf_counter() - begin


def _lane_speeds(runs: int) -> list[Figure]:
    jobs = in_lanes(1000, DEVICES)
    figures = []
    for policy in LANE_POLICIES:
        resolution_us = suggested_resolution_us(jobs, Settings(policy=policy))
        rates = [len(jobs) / lanes(jobs, policy, resolution_us).wall_s for _ in range(runs)]
        what = f"1,000 jobs in lanes with memory on {DEVICES} devices, {policy}"
        figures.append(
            median_figure("simulate", what, "1/s", rates, target=LANE_JOBS_PER_S, at_least=True,
                          detail={"resolution_s": resolution_us / 1e6})
        )  # fmt: skip
    return figures


def _coarseness(count: int) -> list[Figure]:
    """What the coarse resolution costs in truth: mean completion time with it, over that with every hand-over.

    On few devices, so that jobs do meet in lanes although there are not many of them.
    """
    jobs = in_lanes(count, FEW_DEVICES)
    figures = []
    for policy in LANE_POLICIES:
        resolution_us = suggested_resolution_us(jobs, Settings(policy=policy))
        coarse, exact = (_mean_jct_s(lanes(jobs, policy, each, FEW_DEVICES)) for each in (resolution_us, 0))
        what = f"mean JCT, suggested resolution / every hand-over, {count} jobs, {FEW_DEVICES} devices, {policy}"
        figures.append(measured_once("simulate", what, "ratio", coarse / exact, coarse_s=coarse, exact_s=exact))
    return figures


def _mean_jct_s(result: Result) -> float:
    return statistics.mean(job.jct_us for job in result.jobs) / 1e6


def _memory(jobs: int) -> Figure:
    """In a process of its own; trace, simulation and results together."""
    argv = [sys.executable, "-m", "benchmarks.bench_simulate", str(jobs)]
    row = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    what = f"peak memory of a process that simulates {jobs:,} jobs, fifo"
    return measured_once("simulate", what, "MiB", row["peak_mib"], target=MILLION_MIB, simulation_s=row["wall_s"])


def main() -> None:
    """The program that `_memory` runs."""
    result = on_devices(philly_like(int(sys.argv[1])), "fifo")
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak_mib": peak_kib / 1024, "wall_s": result.wall_s}))


if __name__ == "__main__":
    main()
