"""Retries: a failed attempt is followed by another, for want of memory or because the user asked for it, or by the end.

CARMA's recovery (its section on out-of-memory errors) starts a job again, before all others and alone on its device.
Here only a job that is known to have run out of device memory comes back like that; every other failure is final unless
the submission says otherwise.  The number of attempts is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from carpool.core.allocators.base import Allocator
from carpool.core.events import ProcessExited
from carpool.core.model import Attempt, Estimate, JobSpec, Memory, Micros, Reason, alone_after
from carpool.core.placement.needs import RAISE_BY, RAISE_OF, most_after
from carpool.core.state.amounts import clipped, join
from carpool.core.state.job import RECOVERY, Job
from carpool.core.state.state import State


@dataclass(frozen=True, slots=True)
class Again:
    """Another attempt: its submission, and the record of the attempt that failed."""

    spec: JobSpec
    past: Attempt


def judge(state: State, allocator: Allocator, job: Job, event: ProcessExited, reason: Reason) -> Again | Reason:
    """Decide whether a failed job is started again (`Again`); else return the reason with which it ends.

    Never called for a job whose supervisor was lost: it may have succeeded.
    """
    if event.out_of_memory is not None:
        return _judge_memory(state, allocator, job, event.out_of_memory)
    tried = sum(not attempt.out_of_memory for attempt in job.past)
    if tried >= job.spec.retries:
        return story(job.past, reason)
    return Again(job.spec, Attempt(reason.text, job.device))


#: After so many doublings the pause is the longest, however short the first one was.
MOST_DOUBLINGS = 30
#: The longest pause between two attempts.
LONGEST_PAUSE_US = 300_000_000


def pause_us(first_us: Micros, past: tuple[Attempt, ...]) -> Micros:
    """Return the pause before the next attempt: 0 after one that ran out of memory, else twice as long each time.

    ``first_us``: the pause after the first failure.
    """
    if not past or past[-1].out_of_memory:
        return 0
    failed = sum(not attempt.out_of_memory for attempt in past)
    return min(LONGEST_PAUSE_US, first_us << min(failed - 1, MOST_DOUBLINGS))


def _judge_memory(state: State, allocator: Allocator, job: Job, what: str) -> Again | Reason:
    text = f"ran out of memory: {what}{_figures(job)}"
    past = Attempt(text, job.device, True, outgrown_now(state, job), _before_memory(state, job))
    if not job.spec.recover:
        return story(job.past, Reason("out_of_memory", text))
    hopeless = _too_often(state, job) or allocator.no_more_memory(job, past)
    if hopeless is not None:
        return story(job.past, Reason("out_of_memory", f"{text}; not started again: {hopeless}"))
    return Again(_next_spec(state, job, past), past)


def _figures(job: Job) -> str:
    """Say what was refused, and what the user can do; empty if nothing was refused."""
    if job.refused is None:
        return ""
    return f"; refused: {job.refused}; use smaller batches, or a larger device"


def _before_memory(state: State, job: Job) -> bool:
    """Whether the job had no room for its context, which says nothing about its own memory.

    A process that never attached allocates from the driver itself, and may have had much.
    """
    device = state.device_of(job)
    return device is not None and device.context > 0 and job.was_attached and not job.used_device


def _too_often(state: State, job: Job) -> str | None:
    """Return why the job has run out of memory too often for another attempt; None: it has not."""
    done = sum(attempt.out_of_memory for attempt in job.past)
    return (
        f"it has been started again {done} times already (max_recoveries)"
        if done >= state.settings.max_recoveries
        else None
    )


def outgrown_now(state: State, job: Job) -> int:
    """Return the bytes of the job's whole device if these are not enough for it; 0: they may be.

    Of several devices, the one with the fewest bytes counts.  Bytes that foreign processes had of it do not.
    """
    device = state.device_of(job)
    if device is None:
        return 0
    if not (job.exclusive or job.suspends):
        return job.denied
    return min(state.devices[name].usable for name in job.devices or (device.spec.id,))


def _next_spec(state: State, job: Job, past: Attempt) -> JobSpec:
    """Return the next attempt's submission: alone, with more memory, at most what the devices that it may use hold.

    A job that had no memory yet is started as before, once: room for its context is made first.
    """
    if past.before_memory:
        return spec_after(job.spec, (*job.past, past))
    spec = spec_after(job.spec, (past,))
    return replace(spec, estimate=_raised(job, most_after(state, job, past.outgrown)))


def spec_after(spec: JobSpec, past: tuple[Attempt, ...]) -> JobSpec:
    """Return ``spec``, exclusive from now on if the job has run out of memory (`alone_after`)."""
    return replace(spec, exclusive=True) if alone_after(past) else spec


def _raised(job: Job, most: int) -> Estimate | None:
    """Return an estimate larger than what was known or measured, up to ``most``; the old one if nothing was."""
    known = join(job.estimate, Memory(job.usage.persistent_peak, job.usage.ephemeral_peak))
    wanted = Memory(known.persistent * RAISE_BY // RAISE_OF, known.ephemeral * RAISE_BY // RAISE_OF)
    if not wanted.total:
        return job.spec.estimate
    wanted = clipped(wanted, most)
    before = job.spec.estimate
    if before is None:
        return Estimate(wanted, RECOVERY)
    return replace(before, memory=wanted, source=RECOVERY)


def story(past: tuple[Attempt, ...], last: Reason) -> Reason:
    """Return how the job ended, with what happened in each attempt if there were several."""
    if not past:
        return last
    before = "; ".join(
        f"attempt {number}{f' on {attempt.device}' if attempt.device else ''}: {attempt.text}"
        for number, attempt in enumerate(past, 1)
    )
    return Reason(last.code, f"attempt {len(past) + 1}: {last.text}; {before}")
