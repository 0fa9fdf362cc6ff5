"""Salus, section 5.3: 42 models for inference on one device of 16 GiB."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.reproduce.markdown import table
from benchmarks.reproduce.paper import SALUS_INFERENCE_MODELS
from benchmarks.reproduce.runs import Data
from carpool.core.model import GIB, Oversubscribe, Settings
from carpool.sim.driver import simulate
from carpool.sim.generators import generate
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import TraceJob

CAPACITY = 16 * GIB
REQUEST_MS = 10.0
WAYS = {
    "one lane, `fair`": Settings(policy="fair"),
    "one lane, `fair`, grace of 1 ms": Settings(policy="fair", grace_us=1_000),
    "as many lanes as fit, `pack`": Settings(policy="pack"),
}


def run(minutes: float = 10.0, models: int = SALUS_INFERENCE_MODELS) -> Data:
    jobs = generate(f"inference:jobs={models},minutes={minutes},request_ms={REQUEST_MS}", 0)
    return {
        "models": models,
        "persistent_gib": _gib(sum(job.persistent for job in jobs)),
        "ephemeral_sum_gib": _gib(sum(job.ephemeral for job in jobs)),
        "ephemeral_largest_gib": _gib(max(job.ephemeral for job in jobs)),
        "devices_own_memory": _first_fit(jobs),
        "ways": {name: _way(jobs, settings) for name, settings in WAYS.items()},
    }


def _first_fit(jobs: Sequence[TraceJob]) -> int:
    """Devices that it takes if each model keeps its peak for itself, the largest placed first."""
    free: list[int] = []
    for need in sorted((job.persistent + job.ephemeral for job in jobs), reverse=True):
        place = next((place for place, left in enumerate(free) if left >= need), None)
        if place is None:
            free.append(CAPACITY - need)
        else:
            free[place] -= need
    return len(free)


def _way(jobs: Sequence[TraceJob], settings: Settings) -> Data:
    result = simulate(jobs, Options(1, settings, CAPACITY, record=True, oversubscribe=Oversubscribe.OFF))
    recording = result.recording
    assert recording is not None, "it was asked for"
    together = [job for job in result.jobs if job.queueing_us < job.job.duration_us // 2]
    return {
        "at_once": len(together),
        "lanes": len({span.lane for span in recording.spans}),
        "peak_gib": _gib(max(recording.memory[0].values)),
        "utilization": round(result.busy_us / max(job.ended_us for job in result.jobs), 4),
        "request_ms": _request_ms(result),
    }


def _request_ms(result: Result) -> list[float]:
    """Of those that run together: median and largest mean time of a request, with what it has to wait."""
    times = []
    for job in result.jobs:
        if job.started_us is not None and job.queueing_us < job.job.duration_us // 2:
            late_us = job.ended_us - job.started_us - job.job.duration_us
            times.append(REQUEST_MS + late_us / (job.job.iterations or 1) / 1000)
    return [round(statistics.median(times), 1), round(max(times), 1)]


def _gib(size: float) -> float:
    return round(size / GIB, 2)


def tables(data: Data) -> dict[str, str]:
    models = data["models"]
    rows: list[tuple[object, ...]] = [
        ("one model per device", models, "", "", f"{REQUEST_MS:g}", ""),
        ("each keeps its peak (first fit)", data["devices_own_memory"], "", "", "not modelled", ""),
    ]
    for name, way in data["ways"].items():
        median, worst = way["request_ms"]
        rows.append(
            (name, f"1 for {way['at_once']} of {models}", way["lanes"], way["peak_gib"], f"{median}, {worst}",
             f"{100 * way['utilization']:.1f} %")
        )  # fmt: skip
    header = ("", "devices", "lanes", "peak memory, GiB", "a request takes, ms: median, worst model", "device in use")
    return {"salus-inference": table(header, rows)}
