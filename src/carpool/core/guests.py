"""Turns of the whole device: while a job of the checkpoint engine is to have one, or has it, nobody else begins."""

from __future__ import annotations

from carpool.core.model import Engine
from carpool.core.state import Claim, Device, Job, Lane, State


def suspends(job: Job) -> bool:
    """Whether it is suspended between its turns, each of which has the whole device."""
    return job.spec.engine is Engine.CHECKPOINT


def carried(job: Job, size: int) -> int:
    """How much has to be moved for a job with ``size`` bytes: what it could have is not what it has."""
    return min(size, job.usage.persistent_live) if suspends(job) else size


def barred(state: State, job: Job) -> bool:
    """Whether it may not begin to compute, because another is to have the whole device, or has it."""
    device = state.device_of(job)
    if device is None or not device.guests:
        return False
    if device.guest is not None:
        return device.guest != job.id
    others = (state.jobs[number] for number in device.guests if number != job.id)
    return any(other.claim in (Claim.MOVING, Claim.TURNS) for other in others)


def waiting_elsewhere(state: State, lane: Lane) -> list[Job]:
    """The first of each other lane of the device, if the holder of this one keeps them from computing."""
    device = state.devices[lane.device]
    if device.guest is None or device.guest != lane.holder:
        return []
    others = (state.lanes[number] for number in sorted(device.lanes) if number != lane.id)
    return [state.jobs[other.queue[0][-1]] for other in others if other.queue]


def order_changed(state: State, device: Device) -> None:
    """Somebody waits in another place, or not any more: whoever has, or needs, the whole device has other rivals."""
    if device.guest is not None:
        state.touch_lane(state.jobs[device.guest].lane)
    if device.guests:
        state.touch_device(device.spec.id)


def turn_over(state: State, device: Device, job: Job) -> None:
    """Whose turn had the whole device?  Then the others may go on."""
    if device.guest == job.id:
        device.guest = None
        touch_lanes(state, device)


def touch_lanes(state: State, device: Device) -> None:
    for number in sorted(device.lanes):
        state.touch_lane(number)
