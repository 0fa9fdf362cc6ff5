"""Evicting jobs for what is no grant.

Other programs use more of a device, an operator has raised its reserve, or one more job needs room for its context
(`contexts`).  What jobs have beyond what these leave them is the device's *shortfall*.  It is reclaimed in the order in
which jobs give memory to each other (`eviction_plan`): estimates first, then jobs without a turn, then lanes, then
holders, at their next boundary.  A context can wait: for it no estimate is given up, nor what was promised to a job a
moment ago.  Evicted jobs wait for their memory like all whose memory was moved, and come back when it is free.  What
cannot be moved stays, and so does the lane of a job that would not fit any more without leaving: the job would wait for
good, and what others need would not be there all the same.
"""

from __future__ import annotations

from carpool.core.memory.eviction import evict, stays
from carpool.core.memory.eviction_plan import make_plan
from carpool.core.memory.grants import drop_estimate
from carpool.core.memory.residency import set_aside
from carpool.core.model import LaneId, Memory
from carpool.core.state.amounts import needed
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


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
