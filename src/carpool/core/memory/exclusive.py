"""Exclusive jobs, which must have their device to themselves, and pinned jobs, whose memory must stay where it is.

A job submitted as exclusive is placed only on an empty device.  Other jobs turn out to be exclusive while they run
beside others: then jobs of the same user get no turn until the job has ended, and no new job comes.  The first
exclusive job keeps the device; a second one of the same user waits as the rest does.

Jobs of other users go on beside a job that was found to be exclusive, and while there are any, new ones of other users
come: what the job says of itself is no right over other users.  Lanes are of one user, so the two never use the same
memory.

There is one exception.  If an exclusive job waits for memory that can only come back when other jobs have gone on (it
cannot be moved), the exclusive job computes nothing anyway: then the others get turns until it has what it needs.
"""

from __future__ import annotations

from carpool.core.events import TraitsSeen
from carpool.core.memory.grants import freed
from carpool.core.memory.preemption import forget_yield
from carpool.core.model import Reason
from carpool.core.state.device import Device, ExclusiveReason, ExclusiveUse
from carpool.core.state.job import Job
from carpool.core.state.seat_states import PreemptState
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.turns.order import rank, turn_over


def seen(state: State, job: Job, event: TraitsSeen) -> None:
    """Record what is known of the job's use of its device; hearing the same again changes nothing."""
    device = state.device_of(job)
    if device is None:
        return
    if event.immovable != job.immovable:
        job.immovable = event.immovable
        state.touch_device(device.spec.id)
    job.found_exclusive = event.alone
    if event.alone is not None:
        claim(state, device, job)
    elif not job.exclusive:
        give_up(state, device, job)


def claim(state: State, device: Device, job: Job) -> None:
    """Give the device to the job alone, now or when the jobs that claimed it before are gone."""
    if job.id not in device.exclusive_jobs:
        reason = ExclusiveReason.SUBMITTED if job.exclusive else ExclusiveReason.FOUND
        _settle(state, device, [*device.exclusive_to, ExclusiveUse(job.id, reason)])


def give_up(state: State, device: Device, job: Job) -> None:
    """Drop the claim of a job that shares the device again, or has left it."""
    if job.id in device.exclusive_jobs:
        _settle(state, device, [use for use in device.exclusive_to if use.job != job.id])


def holders_first(state: State, device: Device) -> None:
    """Put exclusive jobs that compute first, after a restart, so that they go on."""
    _settle(state, device, sorted(device.exclusive_to, key=lambda use: not state.jobs[use.job].holds))


def waive(state: State, device: Device, truth: bool) -> None:
    """Set whether other jobs get turns although an exclusive job has the device."""
    if device.exclusive_waived != truth:
        device.exclusive_waived = truth
        _turns_anew(state, device)
        state.touch_device(device.spec.id)


def _settle(state: State, device: Device, uses: list[ExclusiveUse]) -> None:
    """Set the device's exclusive jobs; those seated here come first, whatever else was found at a restart."""
    before = device.exclusive_holder
    device.exclusive_to = sorted(uses, key=lambda use: use.reason is ExclusiveReason.SEATED_ELSEWHERE)
    if device.exclusive_holder != before:
        device.exclusive_waived = False
        _turns_anew(state, device)
        freed(state, device)


def _turns_anew(state: State, device: Device) -> None:
    """Update queues, and what holders were asked, after another job, or none, has the device to itself."""
    for number in sorted(device.jobs):
        job = state.jobs[number]
        if job.serves and state.blocked_by_exclusive(job) and not job.holds:
            weights.take_back(state, device, job)
            turn_over(state, device, job)  # a turn that was to follow at once
        rank(state, job)
    for number in sorted(device.lanes):
        lane = state.lanes[number]
        if lane.holder == device.exclusive_holder:
            lane.for_memory = False  # so that the request is taken back
            if lane.preempt.state is not PreemptState.NONE:
                forget_yield(state, lane)  # the holder goes on when no service needs the device
        state.touch_lane(number)


def has_it(state: State, device: Device) -> Reason:
    """Tell other jobs which job has the device to itself, and why."""
    assert device.exclusive_holder is not None
    job = state.jobs[device.exclusive_holder]
    why = job.found_exclusive
    if why is None and len(job.devices) > 1:
        why = f"it was submitted for {len(job.devices)} devices"
    text = f"job {job.number} has exclusive use of {device.spec.id}"
    return Reason("exclusive", f"{text}: {why}" if why is not None else text)


def hold_all(state: State, job: Job, devices: tuple[Device, ...]) -> None:
    """Make all these devices the job's own; its seat is on the first."""
    if len(devices) < 2:
        return
    job.devices = tuple(device.spec.id for device in devices)
    for device in devices[1:]:
        device.exclusive_to.append(ExclusiveUse(job.id, ExclusiveReason.SEATED_ELSEWHERE))
        device.changed()


def release_others(state: State, job: Job) -> None:
    """Release the devices beside the first of a job that is over."""
    for name in job.devices:
        device = state.devices[name]
        use = ExclusiveUse(job.id, ExclusiveReason.SEATED_ELSEWHERE)
        if use in device.exclusive_to:
            device.exclusive_to.remove(use)
            freed(state, device)
    if job.devices:
        job.devices = ()
