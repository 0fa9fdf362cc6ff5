"""The ways in which CARMA's tasks are placed on three devices, and the figures of each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.reproduce.runs import NEVER_US, SECOND, Data, minutes
from carpool.cli.base.presets import PRESETS
from carpool.core.model import GIB, Oversubscribe, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import TELEMETRY_US, Concurrent, Options
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.summary import summarize

DEVICES = 3
MEMORY = 40 * GIB
PLACEMENTS = ("exclusive", "round-robin", "first-fit", "best-fit", "magm", "lug")
#: What is told of memory; "none": nothing, "oracle": what a task really needs.
ESTIMATORS = ("none", "oracle", "horus", "faketensor", "gpumemnet")
#: A task has all of its memory after so long, later than CARMA's window of 30 s for newcomers; until then half of it
#: (assumed).
WARMUP_US = 60_000_000
WARMUP_SHARE_PPM = 500_000
#: Turns last so long, where jobs take turns at all: moving memory each 5 s would make a run a matter of minutes.
RESOLUTION_US = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Way:
    """A system: who gets which share of a device, in settings of the core."""

    settings: Settings
    oversubscribe: Oversubscribe
    all_persistent: bool  # memory stays with the process that has it: nothing is shared between turns


def carma() -> Way:
    """Memory as a process without Carpool has it: a request that does not fit fails, and CARMA's recovery follows."""
    preset = PRESETS["carma"]
    return Way(Settings(policy=preset.policy, **preset_settings()), Oversubscribe.OFF, True)


def preset_settings() -> dict[str, Any]:
    return dict(PRESETS["carma"].settings)


def carpool(policy: str) -> Way:
    """Memory by grant, lanes and oversubscription, as they come.  ``reserve_after_us``: see docs/simulator.md."""
    return Way(Settings(policy=policy, reserve_after_us=NEVER_US), Oversubscribe.AUTO, False)


def ways() -> dict[str, Way]:
    return {"CARMA": carma(), "Carpool, pack": carpool("pack"), "Carpool, fair": carpool("fair")}


def run(
    jobs: Sequence[TraceJob], way: Way, placement: str, estimator: str, loss_ppm: int = 0, memory: int = MEMORY
) -> Data:
    """The figures of one way; estimators speak of peaks.  ``memory``: bytes of each device."""
    told = {"declare_memory": estimator != "none", "estimator": "" if estimator in ("none", "oracle") else estimator}
    options = Options(
        DEVICES,
        replace(way.settings, placement=placement),
        memory,
        Concurrent(loss_ppm),
        RESOLUTION_US,
        declare_duration=False,
        oversubscribe=way.oversubscribe,
        telemetry_us=TELEMETRY_US,
        warmup_us=WARMUP_US,
        warmup_share_ppm=WARMUP_SHARE_PPM,
        **told,  # type: ignore[arg-type]
    )
    jobs = [_all_persistent(job) for job in jobs] if way.all_persistent else jobs
    return figures(simulate(jobs, options))


def _all_persistent(job: TraceJob) -> TraceJob:
    return replace(job, persistent=job.persistent + job.ephemeral, ephemeral=0)


def figures(result: Result) -> Data:
    """Minutes and device-hours; rounded, so that a last bit that another machine computes differently does not show."""
    summary = summarize(result)
    ended = [job for job in result.jobs if job.started_us is not None]
    return {
        "makespan": minutes(summary.makespan_s),
        "waiting": minutes(summary.avg_queueing_s),
        "execution": minutes(statistics.mean(job.ended_us - (job.started_us or 0) for job in ended) / 1e6),
        "jct": minutes(summary.avg_jct_s),
        "p95": minutes(summary.p95_jct_s),
        "out_of_memory": summary.out_of_memory,
        "lost": summary.jobs - summary.succeeded,
        "lost_work": minutes(summary.lost_s),
        "device_hours": round(summary.occupied_s / 3600, 2),
        "utilization": round(summary.utilization, 3),
    }
