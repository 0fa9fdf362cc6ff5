"""Simulations as the parts need them, and the figures that they keep.  Nothing here depends on how fast it ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from carpool.core.model import GIB, Allocation, Micros, Oversubscribe, Settings
from carpool.sim.driver import Witness, simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.summary import summarize

Data = dict[str, Any]

SECOND = 1_000_000
MINUTE_S = 60.0
#: Longer than any trace: nobody who waits gets a device reserved.
NEVER_US = 10**15
#: Time is taken in pieces of so much: hand-overs in between change nothing that is reported here.
RESOLUTION_US = 5 * SECOND
WHOLE_FAIR_QUANTUM_US = 600 * SECOND
LAS_LIMITS = {"las_limit_1_us": 3250 * SECOND, "las_limit_2_us": 7200 * SECOND}


def no_reservations(policy: str) -> Settings:
    """As in Salus, where a large job may be overtaken for ever."""
    return Settings(policy=policy, reserve_after_us=NEVER_US)


def in_lanes(jobs: Sequence[TraceJob], settings: Settings, devices: int = 1, memory: int = 16 * GIB,
             resolution_us: Micros = RESOLUTION_US, witness: Witness | None = None) -> Result:  # fmt: skip
    options = Options(devices, settings, memory, resolution_us=resolution_us, oversubscribe=Oversubscribe.OFF)
    return simulate(jobs, options, witness=witness)


#: Every policy on whole devices, by the name that tables give it.
WHOLE = {
    "fifo": Settings(policy="fifo"),
    "fifo, backfill": Settings(policy="fifo", backfill=1),
    "sjf": Settings(policy="sjf", backfill=0),
    "sjf, backfill": Settings(policy="sjf", backfill=1),
    "srtf": Settings(policy="srtf"),
    "srsf": Settings(policy="srsf"),
    "las, seconds": Settings(policy="las", extra=LAS_LIMITS),
    "las, device-seconds": Settings(policy="las", extra=LAS_LIMITS | {"las_by_devices": 1}),
    "fair": Settings(policy="fair", quantum_us=WHOLE_FAIR_QUANTUM_US),
}


def on_devices(jobs: Sequence[TraceJob], devices: int) -> dict[str, Data]:
    """The figures under every policy for whole devices."""
    return {
        name: figures(simulate(jobs, Options(devices, replace(settings, allocation=Allocation.DEVICES))))
        for name, settings in WHOLE.items()
    }


def figures(result: Result) -> Data:
    """Minutes; rounded, so that a last bit that another machine computes differently does not show."""
    summary = summarize(result)
    if summary.succeeded != summary.jobs:
        raise RuntimeError(f"{summary.jobs - summary.succeeded} of {summary.jobs} jobs did not end well")
    return {
        "makespan": minutes(summary.makespan_s),
        "queueing": minutes(summary.avg_queueing_s),
        "jct": minutes(summary.avg_jct_s),
        "p95": minutes(summary.p95_jct_s),
        "preemptions": summary.preemptions,
        "utilization": round(summary.utilization, 3),
    }


def minutes(seconds: float | None) -> float:
    assert seconds is not None, "jobs have ended"
    return round(seconds / MINUTE_S, 2)
