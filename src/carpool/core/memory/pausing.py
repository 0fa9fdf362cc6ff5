"""Jobs that a user has paused: their memory leaves the device as far as it can be moved, and they keep their place.

A holder is asked for its turn at once (`turns.yielding`).  Once the job has no turn, its persistent memory goes to the
host store, and its share of the lane is given up: what was alive there has been saved with the end of its turn.  A
paused job gets no turn and no memory until it is resumed; then it waits for its turn like any job whose memory was
moved.
"""

from __future__ import annotations

from carpool.core.memory.eviction import evict, stays, takes_device
from carpool.core.memory.grants import drop_estimate, freed, stop_growing
from carpool.core.memory.residency import set_aside
from carpool.core.metering import warmup
from carpool.core.model import Memory, Micros
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns.exclusive_turns import turn_over
from carpool.core.turns.lane_queue import rank


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
    """When a paused job that could not leave is to be asked again."""
    paused = (job for job in map(state.jobs.__getitem__, device.jobs) if job.paused and job.limit.persistent)
    return min((job.unmovable_us for job in paused if job.unmovable_us > state.now), default=None)


def exclusive_holder_paused(state: State, device: Device) -> bool:
    """Whether the job that has the device to itself is paused, and has no turn: meanwhile others may compute."""
    holder = None if device.exclusive_holder is None else state.jobs[device.exclusive_holder]
    return holder is not None and holder.paused and not holder.holds
