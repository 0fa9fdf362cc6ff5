"""Multi-device jobs: each gets all its devices at once or none, and has each of them to itself.

The job is seated on the first device, where it has its lane and its turns.  The other devices are exclusive to it as
well, because it is seated elsewhere (`Device.exclusive_to`).

No two such jobs can wait for each other.  A job gets all its devices in one step.  Where a job has waited too long,
devices are kept for it (`reservations.gather`).
"""

from __future__ import annotations

from functools import partial

from carpool.core.memory.grants import freed
from carpool.core.memory.lanes import Place, Refusal
from carpool.core.model import DeviceId, Reason
from carpool.core.placement.candidates import PlacementChoice, allowed, candidates, need_of, on_device
from carpool.core.placement.reservations import comes_first, kept_for
from carpool.core.state.device import Device, ExclusiveReason, ExclusiveUse
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.units import format_size


def attempt(state: State, job: Job, open_devices: set[DeviceId]) -> PlacementChoice | Refusal:
    """Choose as many of the best devices as the job needs; or return why there are not enough."""
    first = comes_first(state, job)
    if first is not None:
        text = f"job {first.number}, which needs {first.spec.gang} devices and has waited too long, comes first"
        return partial(Reason, "gang", text)
    found: list[tuple[Device, Place]] = []
    refusal: Refusal | None = None
    for device in candidates(state, job):
        if device.spec.id not in open_devices:
            continue
        answer = on_device(state, device, job)
        if not isinstance(answer, Place):
            refusal = refusal or answer
            continue
        found.append((device, answer))
        if len(found) == job.spec.gang:
            return PlacementChoice(tuple(device for device, _ in found), found[0][1])
    return partial(_too_few, state, job, len(found), refusal)


def _too_few(state: State, job: Job, free: int, refusal: Refusal | None) -> Reason:
    kept = [device.spec.id for device in kept_for(state, job)]
    text = f"waiting for {job.spec.gang} devices to itself: {free} of {len(allowed(state, job))} free"
    text += f", kept for it: {', '.join(kept)}" if kept else ""
    return Reason("gang", f"{text}; {refusal().text}" if refusal is not None else text)


def hold(state: State, job: Job, devices: tuple[Device, ...]) -> None:
    """Make all these devices the job's own; its seat is on the first."""
    if len(devices) < 2:
        return
    job.devices = tuple(device.spec.id for device in devices)
    for device in devices[1:]:
        device.exclusive_to.append(ExclusiveUse(job.id, ExclusiveReason.SEATED_ELSEWHERE))


def let_go(state: State, job: Job) -> None:
    """Release the devices beside the first of a job that is over."""
    for name in job.devices:
        device = state.devices[name]
        use = ExclusiveUse(job.id, ExclusiveReason.SEATED_ELSEWHERE)
        if use in device.exclusive_to:
            device.exclusive_to.remove(use)
            freed(state, device)
    if job.devices:
        job.devices = ()


def impossible(state: State, job: Job) -> Reason | None:
    """Why there will never be enough devices for the job; None: there may be."""
    count, devices = job.spec.gang, allowed(state, job)
    if job.suspends:
        return Reason("no_checkpoint", f"engine checkpoint: its jobs run on one device, and it needs {count}")
    if len(devices) < count:
        which = "there are" if job.spec.device is None else "it may use"
        return Reason("too_many_devices", f"needs {count} devices, but {which} {len(devices)}")
    need = need_of(job).total
    large = sum(need <= device.spec.capacity for device in devices)
    if large < count:
        return Reason(
            "too_large", f"needs {format_size(need)} on each of {count} devices, but only {large} hold so much"
        )
    return None
