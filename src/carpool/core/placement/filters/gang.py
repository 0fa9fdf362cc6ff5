"""Multi-device jobs: each gets all its devices at once or none, and has each of them to itself.

The job is seated on the first device, where it has its lane and its turns.  The other devices are exclusive to it as
well, because it is seated elsewhere (`Device.exclusive_to`).

No two such jobs can wait for each other.  A job gets all its devices in one step.  Where a job has waited too long,
devices are kept for it (`core.placement.reservations`).
"""

from __future__ import annotations

from functools import partial

from carpool.core.memory.grants import free_on
from carpool.core.memory.lanes import Refusal
from carpool.core.model import JobId, JobPhase, Reason
from carpool.core.placement.filters.base import Filter
from carpool.core.placement.filters.reserved import kept_for
from carpool.core.placement.filters.user_limits import over_limit
from carpool.core.placement.needs import allowed, fits, need_on
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State, require
from carpool.core.units import format_size


def _older_first(state: State, job: Job) -> Refusal | None:
    first = _comes_first(state, job) if job.spec.needs_several else None
    if first is None:
        return None
    text = f"job {first.number}, which needs {first.spec.gang} devices and has waited too long, comes first"
    return partial(Reason, "gang", text)


def _little_memory(state: State, device: Device, job: Job) -> Refusal | None:
    """Return why the device lacks free memory for a multi-device job, for which no other job is evicted."""
    need = need_on(device, job).total if job.spec.needs_several else 0
    if need <= device.free:
        return None
    return partial(Reason, "memory", f"needs {format_size(need)} on each of its devices, {free_on(state, device)}")


def _comes_first(state: State, job: Job) -> Job | None:
    """Return the older multi-device job that has waited too long for devices that this one may use, too.

    None: there is none.  Where multi-device jobs overlap there may never be enough devices for a larger one, unless no
    other begins.  Memory that foreign processes have of too many devices is nothing that others could wait for.
    """
    number = first_of_several(state)
    if number in (None, job.id) or kept_for(state, job):
        return None
    first = state.jobs[number]
    able = [device for device in allowed(state, first.requirements) if fits(device, first)]
    wanted = {device.spec.id for device in allowed(state, job.requirements)}
    overlap = any(device.spec.id in wanted for device in able)
    return first if overlap and len(able) >= first.spec.gang and first.arrival < job.arrival else None


def first_of_several(state: State) -> JobId | None:
    """Return the multi-device job that has waited too long, and longest; None: there is none."""
    gangs = (number for number in state.due if state.jobs[number].spec.needs_several)
    return next((number for number in gangs if over_limit(state, state.jobs[number]) is None), None)


def too_few(state: State, job: Job, free: int, refusal: Refusal | None) -> Reason:
    """Explain that only ``free`` devices take the job now.  ``refusal``: why the best of the others does not."""
    kept = [device.spec.id for device in kept_for(state, job)]
    able = len(allowed(state, job.requirements))
    text = f"waiting for exclusive use of {job.spec.gang} devices: {free} of {able} free"
    text += f", kept for it: {', '.join(kept)}" if kept else ""
    return Reason("gang", f"{text}; {refusal().text}" if refusal is not None else text)


def check(state: State, job: Job) -> None:
    """Check that the job has all devices it was submitted for, or none; after a restart, those that were found."""
    placed = job.phase in (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)
    several = placed and job.spec.needs_several
    require(several or not job.devices, "devices of a job that needs one, or is on none", job)
    if not several:
        return
    require(job.adopted or len(job.devices) == job.spec.gang, "some of its devices only", job)
    require(not job.devices or job.devices[0] == job.device, "seated on another than its first device", job)
    held = all(state.devices[name].exclusive_holder == job.id for name in job.devices[1:])
    require(held, "one of its devices is not held for it", job)


FILTER = Filter(
    ("gang", "memory"), "enough free devices for a job that needs several", device=_little_memory, job=_older_first
)
