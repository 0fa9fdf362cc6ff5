"""Turns of the whole device: while a job is to have one, or has it, no other job of the device begins.

Checkpoint jobs have such turns, for which other jobs leave the device (`core.memory.suspension`), and services, for
which other jobs only pause (`core.memory.preemption`).
"""

from __future__ import annotations

from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import PreemptState
from carpool.core.state.state import State


def may_start(state: State, job: Job) -> bool:
    """Whether the job may begin to compute; not if another job is to have the whole device for its turn, or has it."""
    device = state.device_of(job)
    if device is None or not device.excluding:
        return True
    if device.exclusive_turn is not None:
        return device.exclusive_turn == job.id
    if job.serves:
        return False  # a service begins with an exclusive turn, and not otherwise
    return not any(_keeps_out(state.jobs[number]) for number in device.excluding if number != job.id)


def _keeps_out(job: Job) -> bool:
    """Whether others may not begin because of the job; while room is made for a service they may still compute."""
    return job.wait is WaitState.TURNS or (job.wait is WaitState.MOVING and job.suspends)


def waiting_elsewhere(state: State, lane: Lane) -> list[Job]:
    """Return the jobs of other lanes that the holder keeps from computing because it has the whole device.

    They are holders that have paused, and the first in each queue; not jobs that an exclusive job keeps out anyway.
    """
    device = state.devices[lane.device]
    if device.exclusive_turn is None or device.exclusive_turn != lane.holder:
        return []
    others = [state.lanes[number] for number in sorted(device.lanes) if number != lane.id]
    paused = [other.holder for other in others if other.preempt.state is PreemptState.PAUSED]
    first = [other.queue[0][-1] for other in others if other.queue]
    jobs = (state.jobs[number] for number in (*paused, *first) if number is not None)
    return [job for job in jobs if not state.blocked_by_exclusive(job)]


def order_changed(state: State, device: Device) -> None:
    """Note that a queue has changed: the job that has, or needs, the whole device has other rivals."""
    if device.exclusive_turn is not None:
        state.touch_lane(state.jobs[device.exclusive_turn].lane)
    if device.excluding:
        state.touch_device(device.spec.id)


def turn_over(state: State, device: Device, job: Job) -> None:
    """End the job's hold of the whole device, if it has it: the others may go on."""
    if device.exclusive_turn == job.id:
        device.exclusive_turn = None
        state.touch_device(device.spec.id)
        touch_lanes(state, device)


def touch_lanes(state: State, device: Device) -> None:
    """Have all lanes of the device refreshed."""
    for number in sorted(device.lanes):
        state.touch_lane(number)
