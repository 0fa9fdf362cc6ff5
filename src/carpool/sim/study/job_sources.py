"""The jobs of one simulation of a study, from its load and its seed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from carpool.sim.generators import generate
from carpool.sim.model.replicas import Spread, drawn, measured_spreads
from carpool.sim.model.trace_job import TraceJob


class JobSource(Hashable, Protocol):
    """Where jobs come from.  Equal arguments give equal jobs, in any process."""

    def jobs(self, load: float | None, seed: int | None) -> Sequence[TraceJob]:
        """Return the jobs; None: the source's own load, or seed.  Raises ValueError for a load that it cannot have."""


@dataclass(frozen=True, eq=False)
class Generated:
    """Jobs of a generator (`carpool.sim.generators`): the first ``limit``, by submission."""

    text: str
    devices: int  # that a load refers to, unless the text says another number
    limit: int | None = None

    def jobs(self, load: float | None, seed: int | None) -> Sequence[TraceJob]:
        """Return the jobs of this seed."""
        return generate(self.text, seed or 0, load, self.devices)[: self.limit]


@dataclass(frozen=True, eq=False)
class Recorded:
    """Jobs of a trace.  A load divides the times between arrivals; no seed changes anything."""

    trace: Sequence[TraceJob]

    def jobs(self, load: float | None, seed: int | None) -> Sequence[TraceJob]:
        """Return the jobs, arriving ``load`` times as fast."""
        if load is None:
            return self.trace
        return [replace(job, submit_us=round(job.submit_us / load)) for job in self.trace]


@dataclass(frozen=True, eq=False)
class Replicated:
    """Replicas of the jobs of another source, which has a seed of its own."""

    source: JobSource
    seed: int | None
    spread: Spread | None  # of each job; None: measured from the jobs

    def jobs(self, load: float | None, seed: int | None) -> Sequence[TraceJob]:
        """Return the replica of this seed."""
        jobs = jobs_of(self.source, load, self.seed)
        return drawn(jobs, self.spreads(jobs), seed or 0)

    def spreads(self, jobs: Sequence[TraceJob]) -> Sequence[Spread]:
        """Return the spread of each of these jobs."""
        return measured_spreads(jobs) if self.spread is None else [self.spread] * len(jobs)


@lru_cache(maxsize=2)
def jobs_of(source: JobSource, load: float | None, seed: int | None) -> Sequence[TraceJob]:
    """Return the jobs of a source; those asked for last are kept, because all policies get the same.

    Two are kept: those of a source, and those of the source that it replicates.
    """
    return source.jobs(load, seed)
