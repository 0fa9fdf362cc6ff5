"""Reading the seats a few times a second, and the jobs' private memory once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from carpool.core.events import Event, Sampled, TraitsSeen
from carpool.core.model import JobPhase
from carpool.daemon.jobs.constraints import LENDS, SEVERAL, TELLING, why_exclusive, why_pinned
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.seats.record import usage_of
from carpool.daemon.system.clock import monotonic_us
from carpool.telemetry.process_trees import Trees

log = logging.getLogger(__name__)
INTERVAL_S = 0.2
SCRATCH_S = 1.0


class Sampler:
    """Two loops for as long as the daemon runs."""

    def __init__(self, jobs: JobTable, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._post = post

    async def run(self) -> None:
        await asyncio.gather(self._sample_seats(), self._sample_scratch())

    async def _sample_seats(self) -> None:
        queued = JobPhase.QUEUED
        while True:
            await asyncio.sleep(INTERVAL_S)
            for job in [job for job in self._jobs.live.values() if job.phase is not queued]:
                self.sample(job)

    def sample(self, job: JobRecord) -> None:
        """Tell the core only what is new: a job that sleeps costs nothing."""
        tell_constraints(job, self._post)
        if job.seated is None:
            return
        usage = usage_of(job, monotonic_us())
        if usage != job.usage:
            job.usage = usage
            self._post(Sampled(job.id, usage))

    async def _sample_scratch(self) -> None:
        trees = Trees()
        while True:
            await asyncio.sleep(SCRATCH_S)
            roots = {job.id: job.pid for job in self._jobs.live.values() if job.pid is not None}
            if not roots:
                continue
            try:
                found = await asyncio.to_thread(private_bytes, trees, roots)
            except OSError as error:
                log.error("cannot look at the jobs' private memory: %s", error)
                continue
            for number, size in found.items():
                if number in self._jobs.live:
                    self._jobs.live[number].scratch_bytes = size


def tell_constraints(job: JobRecord, post: Callable[[Event], None]) -> None:
    """What the core must know of the job's use of its device, once per change."""
    traits = 0 if job.seated is None else job.seated.seat.get("traits") & TELLING
    traits |= SEVERAL if job.several else 0
    traits |= LENDS if job.driver_bytes and job.seated is not None else 0
    if (traits, job.ungated_pid) != (job.traits, job.ungated_told):
        job.traits, job.ungated_told = traits, job.ungated_pid
        post(TraitsSeen(job.id, why_exclusive(traits, job.ungated_pid), why_pinned(traits)))


def private_bytes(trees: Trees, roots: Mapping[int, int]) -> dict[int, int]:
    """Anonymous resident memory of each root process and everything below it, by the roots' keys."""
    totals = dict.fromkeys(roots, 0)
    for process in trees.look({pid: key for key, pid in roots.items()}):
        totals[process.owner] += process.private_bytes
    return totals
