"""Replicas of a trace: the same jobs, with start-up times and paces drawn anew from their spread.

A spread is a standard deviation as a share of the mean.  A factor with mean 1 is drawn for each time (lognormal: never
negative), by job and seed alone, so that all policies get the same replicas.

Measured spreads are those among jobs of the same owner and name, which is the command unless the job was given another.
Few of them say little: then start-ups spread as those of all jobs do, and paces as they do within all groups together,
because the paces of different commands differ for another reason.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from random import Random
from typing import NamedTuple

from carpool.sim.model.random_draws import lognormal
from carpool.sim.model.trace_job import ASSUMED_ITERATION_US, TraceJob

#: Fewest measurements in a group from which its own spread is taken.
FEWEST = 3


class Spread(NamedTuple):
    """Of one job's times over its runs: standard deviations as shares of the means."""

    startup: float = 0.0
    pace: float = 0.0  # time of an iteration; of the whole job where the trace has no iterations


Groups = dict[tuple[int, str], list[float]]


def measured_spreads(jobs: Sequence[TraceJob]) -> list[Spread]:
    """Return the spread of each job, from the jobs themselves; 0 where nothing has been measured more than once."""
    startups, paces = _groups(jobs, measured_startup_us), _groups(jobs, counted_pace_us)
    any_startup = relative_deviation([[*chain.from_iterable(startups.values())]])
    any_pace = relative_deviation(paces.values())
    return [Spread(_within(startups, job, any_startup), _within(paces, job, any_pace)) for job in jobs]


def measured_startup_us(job: TraceJob) -> int:
    """Return the time of the start-up; 0 if it is no more than what rounding iterations to microseconds leaves."""
    return job.startup_us if job.startup_us > (job.iterations or 0) else 0


def counted_pace_us(job: TraceJob) -> int:
    """Return the time of one iteration; 0 if a reader has only assumed iterations (`ASSUMED_ITERATION_US`)."""
    if job.iterations is None or job.iteration_us is None:
        return 0
    work_us = job.iterations * job.iteration_us
    assumed = job.iteration_us >= ASSUMED_ITERATION_US and job.iterations == work_us // ASSUMED_ITERATION_US
    return 0 if assumed else job.iteration_us + job.host_us


def _groups(jobs: Iterable[TraceJob], measured_us: Callable[[TraceJob], int]) -> Groups:
    """Return what was measured of the jobs of each owner and name; 0 is no measurement."""
    found: Groups = defaultdict(list)
    for job in jobs:
        if value := measured_us(job):
            found[job.owner, job.model].append(value)
    return found


def _within(groups: Groups, job: TraceJob, otherwise: float) -> float:
    own = groups.get((job.owner, job.model), [])
    return relative_deviation([own]) if len(own) >= FEWEST else otherwise


def relative_deviation(groups: Iterable[Sequence[float]]) -> float:
    """Return the standard deviation of values from the mean of their group, as a share of it; 0 without any pair."""
    squares = free = 0.0
    for values in groups:
        mean = math.fsum(values) / max(1, len(values))
        squares += math.fsum((value / mean - 1.0) ** 2 for value in values)
        free += max(0, len(values) - 1)
    return math.sqrt(squares / free) if free else 0.0


def drawn(jobs: Sequence[TraceJob], spreads: Sequence[Spread], seed: int) -> list[TraceJob]:
    """Return the replica with this seed.  ``spreads``: one for each job."""
    random = Random(seed)
    return [_drawn(random, job, spread) for job, spread in zip(jobs, spreads, strict=True)]


def _drawn(random: Random, job: TraceJob, spread: Spread) -> TraceJob:
    startup, pace = (_factor(random, share) for share in spread)
    if job.iterations is None or job.iteration_us is None:
        return replace(job, duration_us=max(1, round(job.duration_us * pace)))
    device_us, host_us = max(1, round(job.iteration_us * pace)), round(job.host_us * pace)
    longer_us = job.iterations * (device_us + host_us - job.iteration_us - job.host_us)
    duration_us = job.duration_us + longer_us + round(job.startup_us * (startup - 1.0))
    cpu_us = None if job.startup_cpu_us is None else round(job.startup_cpu_us * startup)
    job = replace(job, duration_us=duration_us, iteration_us=device_us, host_us=host_us)
    return replace(job, startup_cpu_us=cpu_us)


def _factor(random: Random, share: float) -> float:
    return lognormal(random, 1.0, math.sqrt(math.log1p(share * share)))
