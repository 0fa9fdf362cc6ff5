"""Reads the seats a few times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from carpool.core.events import Event, Sampled, TraitsSeen
from carpool.core.model import JobPhase
from carpool.daemon.jobs.constraints import LENDS, SEVERAL, TELLING, why_exclusive, why_pinned
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.seats.record import usage_of
from carpool.daemon.system.clock import monotonic_us
from carpool.protocol.seat import Trait

INTERVAL_S = 0.2


class Sampler:
    """Samples the seats for as long as the daemon runs."""

    def __init__(self, jobs: JobTable, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._post = post

    async def run(self) -> None:
        queued = JobPhase.QUEUED
        while True:
            await asyncio.sleep(INTERVAL_S)
            for job in [job for job in self._jobs.live.values() if job.phase is not queued]:
                self.sample(job)

    def sample(self, job: JobRecord) -> None:
        """Report only changes to the core: a job that sleeps costs nothing."""
        tell_constraints(job, self._post)
        if job.seated is None:
            return
        usage = usage_of(job, monotonic_us())
        if usage != job.usage:
            job.usage = usage
            self._post(Sampled(job.id, usage))


def tell_constraints(job: JobRecord, post: Callable[[Event], None]) -> None:
    """Report to the core what the job's use of its device rules out, once per change."""
    traits = 0 if job.seated is None else job.seated.seat.get("traits") & TELLING
    traits |= SEVERAL if job.has_secondary else 0
    traits |= LENDS if job.driver_bytes and job.seated is not None else 0
    if (traits, job.ungated_pid) != (job.traits, job.ungated_told):
        job.traits, job.ungated_told = traits, job.ungated_pid
        job.passing = job.seated.seat.passing() if traits & Trait.UNGATED and job.seated is not None else ""
        post(TraitsSeen(job.id, why_exclusive(traits, job.ungated_pid, job.passing), why_pinned(traits)))
