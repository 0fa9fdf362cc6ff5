"""Estimates that the elements of an array are given by its first trials.

An element of which nothing is known waits while as many newcomers as the device takes warm up (`metering.warmup`).  The
elements of one array do the same work, so what one of them has needed the others are expected to need, too: from when
it is measured, or has succeeded, waiting elements are reserved that much and are newcomers no more.  As many elements
as may warm up at a time that have succeeded without any use of the device teach that none is needed: a single one may
have found its work done already.

The learned estimate only grows: the next element is not to be placed where a smaller one would fit.  Hints, earlier
runs and estimators count more.  A restarted core learns anew.
"""

from __future__ import annotations

from carpool.core.model import Estimate, JobPhase, Memory, Outcome
from carpool.core.placement import queue, reservations
from carpool.core.state.amounts import join
from carpool.core.state.job import ARRAY, Job
from carpool.core.state.seat_states import NOTHING
from carpool.core.state.state import ArrayMemory, State


def joined(state: State, job: Job) -> None:
    """Add a new job to its array, if it is an element of one."""
    if job.spec.array is not None:
        state.array_memory.setdefault(job.spec.array, ArrayMemory()).jobs.add(job.id)


def ended(state: State, job: Job) -> None:
    """Remove a job that is over from its array; what the array has learned goes with its last job."""
    known = _of(state, job)
    if known is not None:
        known.jobs.discard(job.id)
        if not known.jobs and job.spec.array is not None:
            del state.array_memory[job.spec.array]


def learn(state: State, job: Job) -> None:
    """Expect waiting elements of the array to need as much as this job, which has been measured or has ended."""
    known, seen = _of(state, job), _seen(state, job)
    if known is None or seen is None or not _taught(state, known, seen):
        return
    most = join(NOTHING if known.memory is None else known.memory, seen)
    if most == known.memory:
        return
    known.memory = most
    for number in sorted(known.jobs):
        if not state.jobs[number].held_back:  # it gets the estimate when it is queued
            believe(state, state.jobs[number])
    reservations.review(state)
    state.admit_all = True


def _taught(state: State, known: ArrayMemory, seen: Memory) -> bool:
    """Whether what one element has needed says what the others will need."""
    known.without += seen == NOTHING
    return seen != NOTHING or known.without >= state.settings.warm_limit


def believe(state: State, job: Job) -> None:
    """Give a queued job the estimate learned from its array, unless it has another estimate."""
    known = _of(state, job)
    own = job.spec.estimate
    if known is None or known.memory is None or job.phase is not JobPhase.QUEUED or not _alike(job):
        return
    if own is None or (own.source == ARRAY and own.memory != known.memory):
        queue.expect(state, job, Estimate(known.memory, ARRAY))


def _of(state: State, job: Job) -> ArrayMemory | None:
    return None if job.spec.array is None else state.array_memory.get(job.spec.array)


def _alike(job: Job) -> bool:
    """Whether the job's peaks tell its need: they say less of services, multi-device jobs and checkpoint jobs."""
    return not job.serves and not job.spec.needs_several and not job.spec.checkpoint


def _seen(state: State, job: Job) -> Memory | None:
    """Return what the job has needed, in the steps in which memory is granted; None: unknown."""
    succeeded = job.outcome is Outcome.SUCCEEDED
    if not _alike(job) or job.found_exclusive is not None or not (succeeded or job.measured):
        return None
    peaks = Memory(job.usage.persistent_peak, job.usage.ephemeral_peak)
    if not peaks.total:
        return NOTHING if succeeded and not (job.used_device or job.adopted) else None
    step = state.settings.growth_step
    return Memory(-(-peaks.persistent // step) * step, -(-peaks.ephemeral // step) * step)
