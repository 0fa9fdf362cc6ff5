"""What the simulator makes of the jobs of `bench_collocation`, beside the newest stored live run of all of them.

Arrivals, iterations and memory are those of the scripts, and a process's start-up is measured here, alone.  Simulated
devices know nothing of each other; the live ones are parts of one host and share its cores.  What that does to the
start of 60 processes is the difference to expect.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.__main__ import RESULTS
from benchmarks.bench_collocation import (
    DEVICE_MIB,
    DEVICES,
    POLICY,
    SECONDS_PER_MINUTE,
    STEP_MS,
    WAIT_MS,
    WAYS,
    Task,
    read_tasks,
)
from benchmarks.figures import Figure, Skipped, measured_once
from benchmarks.jobs import argv, run_bare
from carpool.core.model import MIB, Micros, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import TELEMETRY_US, Options
from carpool.sim.model.trace_job import TraceJob

#: What the small network of the script needs beside the parameters that it is told to have.
NETWORK_PERSISTENT, NETWORK_EPHEMERAL = 1 * MIB, 2 * MIB
STARTS = 5


def run(quick: bool) -> list[Figure]:
    stored, live = newest_live()
    startup_us = _startup_us(1 if quick else STARTS)
    jobs = [modelled(number, task, startup_us) for number, task in enumerate(read_tasks()[: live["jobs"]])]
    made = {name: makespan_s(jobs, placement) for name, placement in WAYS.items()}
    seen = {name: live[f"{name}_makespan_s"] for name in WAYS}
    rows = [(f"makespan, {name}", made[name], seen[name]) for name in WAYS]
    rows.append(
        ("makespan, shared / exclusive", made["shared"] / made["exclusive"], seen["shared"] / seen["exclusive"])
    )
    detail = {"live_result": stored, "startup_s": startup_us / 1e6}
    return [_figure(*row, detail) for row in rows]


def _figure(what: str, simulated: float, live: float, detail: dict[str, Any]) -> Figure:
    """Makespans are seconds."""
    sides = {"simulated": round(simulated, 2), "live": round(live, 2)}
    ratio = simulated / live
    return measured_once("collocation_predicted", f"{what}: simulated / live", "ratio", ratio, **sides, **detail)


def newest_live() -> tuple[str, dict[str, Any]]:
    """Name and figures of the newest stored run at the present scale that was not a quick one.  Raises Skipped."""
    scale = {"seconds_per_minute": SECONDS_PER_MINUTE, "wait_ms": WAIT_MS}
    for path in sorted(RESULTS.glob("*.json"), reverse=True):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored.get("quick"):
            continue
        for figure in stored.get("figures", ()):
            if figure["benchmark"] == "collocation" and scale.items() <= figure["detail"].items():
                return path.name, figure["detail"]
    raise Skipped(f"no result of a whole run of bench_collocation with {scale} in {RESULTS}")


def _startup_us(times: int) -> Micros:
    """From the start of a process of the script to its first iteration, nobody else there."""
    return round(statistics.median(_start_s() for _ in range(times)) * 1e6)


def _start_s() -> float:
    begin = time.monotonic()
    found = run_bare(argv("loader.py", 1, 1, 0))
    return time.monotonic() - begin - (found["end_s"] - found["begin_s"])


def modelled(number: int, task: Task, startup_us: Micros) -> TraceJob:
    iteration_us, host_us = round(STEP_MS * 1000), round(WAIT_MS * 1000)
    return TraceJob(
        id=str(number),
        submit_us=round(task.at_s * 1e6),
        duration_us=startup_us + task.iterations * (iteration_us + host_us),
        gpus=task.gpus,
        iterations=task.iterations,
        iteration_us=iteration_us,
        host_us=host_us,
        persistent=task.mib * MIB + NETWORK_PERSISTENT,
        ephemeral=NETWORK_EPHEMERAL,
    )


def makespan_s(jobs: Sequence[TraceJob], placement: str) -> float:
    """Nothing is declared, as live."""
    settings = Settings(policy=POLICY, placement=placement)
    options = Options(DEVICES, settings, DEVICE_MIB * MIB, declare_memory=False, declare_duration=False,
                      telemetry_us=TELEMETRY_US)  # fmt: skip
    return max(job.ended_us for job in simulate(jobs, options).jobs) / 1e6
