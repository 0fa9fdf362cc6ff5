"""Device time: how much a job has had, how much it still needs, and how it stands against the others of its lane."""

from __future__ import annotations

from carpool.core.model import Micros, Usage
from carpool.core.state.job import Job
from carpool.core.state.lane import Lane
from carpool.core.state.preempt_state import Paused
from carpool.core.state.state import State

FULL_WEIGHT = 100


def attained(state: State, job: Job) -> Micros:
    """Return the job's device time up to now, the present turn included."""
    if job.lane is None:
        since = job.devices_us
        return job.attained_us if since is None else job.attained_us + max(0, state.now - since)
    lane = state.lanes[job.lane]
    if lane.holder != job.id:
        return job.attained_us
    until = lane.preempt.since_us if isinstance(lane.preempt, Paused) else state.now
    return max(job.attained_us, lane.turn_base_us + until - lane.turn_us)


def virtual(job: Job, attained_us: Micros) -> Micros:
    """Return the job's weighted device time, given what it has attained by now."""
    return job.virtual_us + (attained_us - job.attained_us) * FULL_WEIGHT // job.spec.weight


def account(state: State, job: Job, usage: Usage) -> None:
    """Take over a job's counters.  A process that attached anew counts from zero again; nothing is lost."""
    gained = usage.device_us - job.usage.device_us
    if gained > 0:
        virtual_us = job.virtual_us + gained * FULL_WEIGHT // job.spec.weight
        job.set(virtual_us=virtual_us, attained_us=job.attained_us + gained)
        _charge(state, job, gained)
    each = usage.device_us // usage.iterations if usage.iterations > 0 and usage.device_us > 0 else job.iteration_us
    job.set(usage=usage, iteration_us=each)


def _charge(state: State, job: Job, gained: Micros) -> None:
    """Charge the job's user for all devices that the job has to itself.  Services are free: they compute for others."""
    if not job.serves:
        state.uses.charge(job.spec.account, gained * max(1, len(job.devices)), state.now)


def reconcile_time(state: State, job: Job, total: Micros) -> None:
    """Count the core's own clock for a job whose driver counts no device time in `Usage`, to keep the order right."""
    missing = total - job.attained_us
    if missing > 0 and job.usage.device_us == 0:
        job.virtual_us += missing * FULL_WEIGHT // job.spec.weight
        job.attained_us = total
        _charge(state, job, missing)


def iterations_total(job: Job) -> int | None:
    """How many iterations the job will have done, as the user or an earlier run says; None: unknown."""
    if job.spec.iterations is not None:
        return job.spec.iterations
    return job.spec.estimate.iterations if job.spec.estimate is not None else None


def remaining(job: Job, attained_us: Micros) -> Micros | None:
    """Return the device time that the job still needs; None: unknown.

    The job's own report of progress counts most, then what the user declared, then earlier runs.
    """
    usage = job.usage
    if usage.progress_total > 0 and usage.progress_done > 0:
        left = max(0, usage.progress_total - usage.progress_done)
        return attained_us * left // usage.progress_done
    if job.spec.iterations is None and job.spec.duration_us is not None:
        return max(0, job.spec.duration_us - attained_us)
    total = iterations_total(job)
    if total is None:
        return None
    each = job.iteration_us
    if each is None and job.spec.estimate is not None:
        each = job.spec.estimate.iteration_us
    return max(0, total - usage.iterations) * each if each is not None else None


def level(state: State, job: Job) -> None:
    """Level the weighted device time of a job that comes to its lane, or back to it, with the jobs there.

    A newcomer starts exactly where the least served of the others stands.  A job that was away keeps a credit of one
    quantum at most: enough that the CPU part of an iteration costs nothing, too little to hoard.
    """
    lane = state.lane_of(job)
    assert lane is not None
    least = _least(state, job)
    if not job.time_levelled:
        job.virtual_us = max(job.virtual_us, lane.virtual_us if least is None else least)
    elif least is not None:
        job.virtual_us = max(job.virtual_us, least - state.quanta[job.device])
    job.time_levelled = True


def _least(state: State, job: Job) -> Micros | None:
    """Return the smallest weighted device time among the others that hold or await the lane's turn.

    Where checkpoint jobs have turns of the whole device, the turns of all its lanes count.
    """
    lane = state.lane_of(job)
    assert lane is not None
    device = state.devices[lane.device]
    whole = bool(device.excluding) and any(state.jobs[number].suspends for number in device.excluding)
    lanes = [state.lanes[number] for number in sorted(device.lanes)] if whole else [lane]
    found = [least for each in lanes if (least := _least_of(state, each, job)) is not None]
    return min(found, default=None)


def _least_of(state: State, lane: Lane, job: Job) -> Micros | None:
    least = min((state.jobs[key[-1]].virtual_us for key in lane.queue if key[-1] != job.id), default=None)
    if lane.holder is not None and lane.holder != job.id:
        holder = state.jobs[lane.holder]
        own = virtual(holder, attained(state, holder))
        least = own if least is None else min(least, own)
    return least
