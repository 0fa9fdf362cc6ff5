"""Jobs of a trace: what the core is told about a job, and what the job will really do."""

from __future__ import annotations

from typing import NamedTuple

from carpool.core.model import Allocation, Estimate, JobSpec, Memory, Micros
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob


class SimulatedAttempt(NamedTuple):
    """One run of a job's script: from ``begin_us`` of its work on, for ``work_us``, ending with exit code ``code``."""

    begin_us: Micros
    work_us: Micros
    code: int


def attempt_of(job: TraceJob, first: bool) -> SimulatedAttempt:
    """Return an attempt: the first may fail on the way; a later one runs from the last checkpoint to the end."""
    if job.fails_at_ppm is None:
        return SimulatedAttempt(0, job.duration_us, 0)
    dies_us = max(1, job.duration_us * job.fails_at_ppm // WHOLE_PPM)
    if first:
        return SimulatedAttempt(0, dies_us, 1)
    kept = min(dies_us, job.duration_us - 1)
    saved = kept // job.checkpoint_us * job.checkpoint_us if job.checkpoint_us else 0
    return SimulatedAttempt(saved, job.duration_us - saved, 0)


def resumed(job: TraceJob, attempt: SimulatedAttempt, position_us: Micros) -> SimulatedAttempt:
    """Return the rest of an attempt that ended at ``position_us``: all work since the last checkpoint is lost."""
    every = job.checkpoint_us
    begin = max(attempt.begin_us, position_us // every * every) if every else attempt.begin_us
    end = attempt.begin_us + attempt.work_us
    begin = min(begin, end - 1)
    return SimulatedAttempt(begin, end - begin, attempt.code)


def spec_of(job: TraceJob, attempt: SimulatedAttempt, options: Options) -> JobSpec:
    """Return the spec that the core gets; a failure is unknown beforehand, so its duration is that up to the end."""
    return JobSpec(
        owner=job.owner,
        name=job.model,
        kind=job.model,
        duration_us=job.duration_us - attempt.begin_us if options.declare_duration else None,
        weight=job.weight,
        gang=job.gpus,
        estimate=_estimate(job, options),
    )


def _estimate(job: TraceJob, options: Options) -> Estimate | None:
    if not options.declare_memory or options.settings.allocation is Allocation.DEVICES:
        return None
    if options.estimator:
        return _estimated(job, dict(job.estimates).get(options.estimator))
    if not (job.persistent or job.ephemeral or options.declare_duration):
        return None
    return Estimate(Memory(job.persistent, job.ephemeral), "hint")


def _estimated(job: TraceJob, total: int | None) -> Estimate | None:
    """Split an estimator's peak in the proportions of the job's real need; None if there is no estimate."""
    if total is None:
        return None
    real = job.persistent + job.ephemeral
    persistent = total * job.persistent // real if real else total
    return Estimate(Memory(persistent, total - persistent), "hint")
