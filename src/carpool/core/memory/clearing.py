"""Memory that leaves a device without another job's request: that of paused jobs, and for memory outside of grants.

The memory of jobs that a user has paused leaves the device as far as it can be moved, and they keep their place.  A
holder is asked for its turn at once (`turns.yielding`).  Once the job has no turn, its persistent memory goes to the
host store, and its share of the lane is given up: what was alive there has been saved with the end of its turn.  A
paused job gets no turn and no memory until it is resumed; then it waits for its turn like any job whose memory was
moved.

Jobs are evicted for memory outside of grants: other programs use more of a device, an operator has raised its reserve,
one more job needs room for its context (`contexts`).  Granted memory that these leave no room for is the device's
*shortfall*.  It is reclaimed in the order in which jobs give memory to each other (`eviction.make_plan`): estimates
first, then jobs without a turn, then lanes, then holders, at their next boundary.  A context can wait: for it no
estimate is given up, nor what was promised to a job a moment ago.  Evicted jobs wait for their memory like all whose
memory was moved, and come back when it is free.  What cannot be moved stays, and so does the lane of a job that would
not fit any more without leaving: the job would wait for good, and what others need would not be there all the same.
"""

from __future__ import annotations

from carpool.core.memory.eviction import evict, make_plan, stays, takes_device
from carpool.core.memory.grants import drop_estimate, freed, stop_growing
from carpool.core.memory.residency import set_aside
from carpool.core.metering import warmup
from carpool.core.model import LaneId, Memory, Micros
from carpool.core.state.amounts import needed
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns.order import rank, turn_over


def changed(state: State, job: Job) -> None:
    """Apply that a job on its device has been paused or resumed."""
    device = state.device_of(job)
    if device is None:
        return
    if job.paused:
        warmup.over(state, device, job)
        stop_growing(state, job)
        if not job.holds and takes_device(state, job):
            turn_over(state, device, job)
    else:
        job.promised_us = None
    rank(state, job)
    state.touch_lane(job.lane)
    freed(state, device)


def empty(state: State, device: Device) -> None:
    """Take memory from the paused jobs of a device, as far as it can be taken."""
    for number in sorted(device.jobs):
        job = state.jobs[number]
        if job.paused and not job.holds and not job.suspends:
            _empty(state, device, job)


def _empty(state: State, device: Device, job: Job) -> None:
    if drop_estimate(state, job):
        freed(state, device)
    if _movable(state, job):
        evict(state, job)
    elif job.limit.ephemeral and not job.offload_asked:
        set_aside(state, job, Memory(job.limit.persistent, 0))
        freed(state, device)


def _movable(state: State, job: Job) -> bool:
    there = job.attached and job.limit.persistent > 0 and not job.offload_asked
    return there and not stays(state, job) and state.now >= job.unmovable_us


def next_attempt(state: State, device: Device) -> Micros | None:
    """Return when a paused job that could not leave is to be asked again."""
    paused = (job for job in map(state.jobs.__getitem__, device.jobs) if job.paused and job.limit.persistent)
    return min((job.unmovable_us for job in paused if job.unmovable_us > state.now), default=None)


def exclusive_holder_paused(state: State, device: Device) -> bool:
    """Whether the job that has the device to itself is paused, and has no turn: meanwhile others may compute."""
    holder = None if device.exclusive_holder is None else state.jobs[device.exclusive_holder]
    return holder is not None and holder.paused and not holder.holds


def relieve(state: State, device: Device) -> None:
    """Evict what the shortfall requires, and ask the holders whose memory is needed, too, for their turns."""
    asked = _make_room(state, device) if device.shortfall else set()
    for number in sorted(device.lanes):
        lane = state.lanes[number]
        if lane.reclaimed != (number in asked):
            lane.reclaimed = number in asked
            state.touch_lane(number)
    if device.expected is not None and not device.shortfall:
        state.admit_all = True


def _make_room(state: State, device: Device) -> set[LaneId]:
    """Evict jobs for the shortfall; return the lanes whose holders have to yield."""
    missing = _missing(state, device)
    if missing <= 0:
        return set()
    plan = make_plan(state, device, None, missing, patient=not device.with_others)
    for job in plan.evicted:
        evict(state, job)
    for job in plan.absent:
        if not _would_wait_for_good(state, device, job):
            set_aside(state, job, Memory(job.limit.persistent, 0))
    return {lane.id for lane in plan.held if not _goes_on(state, device, lane.holder)}


def _missing(state: State, device: Device) -> int:
    """Return the bytes of the shortfall that are not leaving already, once needless reservations are dropped."""
    jobs = [state.jobs[number] for number in sorted(device.jobs)]
    for job in jobs:
        if device.shortfall and device.with_others:
            drop_estimate(state, job)
    return device.shortfall - sum(job.reserved.persistent for job in jobs if job.offload_asked and not job.holds)


def _goes_on(state: State, device: Device, holder: int | None) -> bool:
    """Whether the holder keeps its turn: it needs memory before it can yield, or would lose its place for nothing."""
    job: Job | None = None if holder is None else state.jobs[holder]
    if job is None or any(request.keeps_turn for request in job.pending.values()):
        return True
    return _would_wait_for_good(state, device, job)


def _would_wait_for_good(state: State, device: Device, job: Job) -> bool:
    """Whether the job's persistent memory stays, and the rest would find no room beside that."""
    return (stays(state, job) or state.now < job.unmovable_us) and needed(job).total > device.usable
