"""Eviction: which jobs' memory leaves a device when another job needs it.

The policy orders the victims (`Policy.victim_key`); this module says which jobs may be victims at all: a job without a
turn, whose memory is there and may be moved, which has not just been promised that it stays, which has had enough of
its turn since its memory came back (or does not want any, or is kept out by an exclusive job), and which does not come
before the waiter.  For a service, and for other programs, every job is evicted that is no service and may be moved.
"""

from __future__ import annotations

from bisect import bisect_left

from carpool.core.commands import DropStore
from carpool.core.memory.grants import keep_in_store
from carpool.core.memory.residency import RETRY_US, offload
from carpool.core.metering.transfer_cost import there_and_back_us
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import Micros
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns import services

#: A job keeps memory that others were evicted for this long, or until it has had its turn.
PROMISE_US = 1_000_000


def evict(state: State, job: Job) -> None:
    """Offload the job's memory, for a pause or for no grant; if the store has no room, the job is asked again later."""
    if storable(state, [job]):
        offload(state, job)
    else:
        job.unmovable_us = state.now + RETRY_US


def choose(state: State, device: Device, waiter: Job | None, missing: int, patient: bool = False) -> list[Job]:
    """Choose jobs to offload so that ``missing`` bytes become free, no more of them than it takes.

    Fewer bytes if there are not enough.  ``waiter`` None: for what is no grant; ``patient``: that can wait as a job
    that is no service waits.
    """
    chosen: list[Job] = []
    found = 0
    for job in candidates(state, device, waiter, patient):
        if found >= missing:
            break
        chosen.append(job)
        found += job.reserved.persistent
    for job in tuple(reversed(chosen)):  # the last ones cost most
        if found - job.reserved.persistent >= missing:
            chosen.remove(job)
            found -= job.reserved.persistent
    return chosen


def candidates(state: State, device: Device, waiter: Job | None, patient: bool = False) -> list[Job]:
    """Return the jobs that may be evicted for the waiter, the best victim first."""
    jobs = (state.jobs[number] for number in sorted(device.jobs))
    view, at_once = lazy_view(state), not patient if waiter is None else waiter.serves

    def key(job: Job) -> tuple[tuple[int, ...], int]:
        return (state.policy.victim_key(view, job_view(state, job), ahead_of(state, job)), -job.placed)

    able = (job for job in jobs if may_leave(state, job, at_once) and not comes_first(state, job, waiter))
    return sorted(able, key=key)


def may_leave(state: State, job: Job, at_once: bool) -> bool:
    """Whether the job's memory can be taken now.

    ``at_once``: for a service or other programs, which come before what other jobs were promised.
    """
    if not _movable(state, job):
        return False
    if state.kept_out(job) or (at_once and not job.serves):
        return True
    if promised(state, job):
        return False
    if job.wanted or job.pending:
        return job.attained_us >= job.stays_us
    return state.now >= _idle_enough_us(state, job)


def _movable(state: State, job: Job) -> bool:
    """Whether the job has memory that could be moved, whatever it was promised."""
    if not job.attached or job.reserved.persistent == 0 or job.offload_asked or job.holds:
        return False
    return not (job.suspends or stays(state, job) or takes_device(state, job) or state.now < job.unmovable_us)


def stays(state: State, job: Job) -> bool:
    """Whether the job's memory is not moved at all.  (Without a seat it is that of its other processes.)"""
    device = state.device_of(job)
    if not job.attached and job.limit.persistent:
        return True
    return job.pinned is not None or (device is not None and device.exclusive_holder == job.id)


def _idle_enough_us(state: State, job: Job) -> Micros:
    """When an idle job may leave: when it has been off the device for as long as moving it takes (ski rental).

    A job that has just yielded to others may leave at once: it was waited for long enough.
    """
    device = state.device_of(job)
    assert device is not None
    size = 0 if job.gave_way else job.reserved.persistent
    return job.idle_since_us + there_and_back_us(device, size)


def takes_device(state: State, job: Job) -> bool:
    """Whether the whole device has been made free for the job's turn, which follows at once."""
    device = state.device_of(job)
    return device is not None and device.exclusive_turn == job.id


def promised(state: State, job: Job) -> bool:
    """Whether others left for the job's memory so recently that it keeps it, even unused (`PROMISE_US`)."""
    return job.promised_us is not None and state.now < job.promised_us + PROMISE_US


def comes_first(state: State, job: Job, waiter: Job | None) -> bool:
    """Whether ``job`` waits for its turn, and gets it before the waiter."""
    if waiter is None:
        return False
    if job.id == waiter.id:
        return True
    if job.turn_key is None or waiter.holds:
        return False
    if job.serves or waiter.serves:
        return services.comes_first(job, waiter)
    lane = state.lane_of(waiter)
    if waiter.turn_key is not None and lane is not None and lane.id == job.lane:
        return job.turn_key < waiter.turn_key
    view = lazy_view(state)
    return state.policy.turn_key(view, job_view(state, job)) < state.policy.turn_key(view, job_view(state, waiter))


def ahead_of(state: State, job: Job) -> int | None:
    """How many jobs of its lane compute before the job; None: it does not want to compute."""
    if job.turn_key is None:
        return 0 if job.pending else None
    lane = state.lane_of(job)
    assert lane is not None
    return bisect_left(lane.queue, job.turn_key) + (lane.holder is not None)


def storable(state: State, jobs: list[Job]) -> bool:
    """Whether the host store can take all these jobs.

    What it only keeps for jobs whose memory is back is dropped first.
    """
    budget = state.settings.host_store
    more = sum(max(0, job.reserved.persistent - job.kept) for job in jobs)
    if budget is None or state.store_kept + more <= budget:
        return True
    idle = [job for job in _kept_for_nothing(state) if job not in jobs]
    if state.store_kept + more - sum(job.kept for job in idle) > budget:
        return False
    for job in idle:
        if state.store_kept + more <= budget:
            break
        keep_in_store(state, job, 0)
        state.emit(DropStore(job.id))
    return True


def _kept_for_nothing(state: State) -> list[Job]:
    """Return jobs whose memory is all on the device while the store keeps pages for them; the most pages first."""
    jobs = (state.jobs[number] for device in state.devices.values() for number in device.jobs)
    kept = [job for job in jobs if job.kept and not (job.offloaded or job.offload_asked or job.usage.stored)]
    return sorted(kept, key=lambda job: (-job.kept, job.id))


def next_change(state: State, device: Device) -> Micros | None:
    """When a job that may not be evicted now may be, because time has passed; None: no such job."""
    jobs = [state.jobs[number] for number in device.jobs]
    moments = [job.promised_us + PROMISE_US for job in jobs if job.promised_us is not None]
    moments += [job.unmovable_us for job in jobs]
    idle = (job for job in jobs if job.attached and job.reserved.persistent and not (job.wanted or job.holds))
    moments += [_idle_enough_us(state, job) for job in idle]
    return min((moment for moment in moments if moment > state.now), default=None)
