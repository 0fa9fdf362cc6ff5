"""The machine's memory as a condition of every start: the free memory beyond a reserve, less the memory that started
jobs are still going to need.

A job that is warming up has little memory and is going to have more, so what it is expected to need counts all the
time.  The first job always starts: what others take of the machine is not a reason to compute nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from carpool.core.events import HostMeasured
from carpool.core.memory.lanes import Refusal
from carpool.core.metering import warmup
from carpool.core.model import JobId, JobPhase, Outcome, Reason
from carpool.core.placement.filters.base import Filter
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.units import format_size


def measured(state: State, event: HostMeasured) -> None:
    """Record what memory the machine has left, and what the jobs use now."""
    host = state.host
    kinds = {number: _kind(state, number) for number in event.jobs if not _is_over(state, number)}
    host.free, host.cores, host.missing = event.free, event.cores, None
    host.told(event.jobs, kinds)
    warmup.idle(state, event.idle)
    if host.waiter is not None:
        forget(state, host.waiter)


def forget(state: State, number: JobId) -> None:
    """Have queued jobs tried anew if the job that found no memory of the machine is in their way no more."""
    if state.host.waiter == number:
        state.host.waiter, state.admit_all = None, True


def _is_over(state: State, number: JobId) -> bool:
    job = state.jobs.get(number)
    return number in state.pruned_ids if job is None else job.phase is JobPhase.ENDED


def _kind(state: State, number: JobId) -> str:
    """Return the job's kind; empty for a job that has not been heard of yet, after a restart."""
    job = state.jobs.get(number)
    return "" if job is None else job.spec.kind


def short(state: State, job: Job) -> Refusal | None:
    """Return why the machine has no room for one job more; None: it has, or its memory is not measured."""
    host = state.host
    if host.free is None or not any(device.jobs for device in state.devices.values()):
        return None
    left, need = host.free - missing(state), host.expected(job.spec.kind)
    return None if need <= left else partial(_why, host.free, missing(state), need)


def missing(state: State) -> int:
    """Return the bytes of the machine's memory that started jobs are still going to need."""
    host = state.host
    if host.missing is None:
        host.missing = sum(host.still_needs(job.id, job.spec.kind) for job in _started(state))
    return host.missing


def started(state: State, job: Job) -> None:
    """Count one more started job."""
    if state.host.missing is not None:
        state.host.missing += state.host.still_needs(job.id, job.spec.kind)


def over(state: State, job: Job) -> None:
    """Forget an attempt that has ended: what it had is free when it has been measured next."""
    state.host.over(job.id, job.spec.kind, job.outcome is Outcome.SUCCEEDED)
    state.host.missing = None


def _started(state: State) -> Iterator[Job]:
    for device in state.devices.values():
        yield from (state.jobs[number] for number in device.jobs)


def _why(free: int, promised: int, need: int) -> Reason:
    has = f"the machine has {format_size(max(0, free))} of its own memory left beyond its reserve"
    others = f", of which started jobs are expected to take {format_size(promised)} more" if promised else ""
    return Reason("host_memory", f"needs {format_size(need)} of the machine's memory; {has}{others}")


FILTER = Filter(("host_memory",), "memory of the machine", job=short)
