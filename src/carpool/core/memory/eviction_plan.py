"""Plans that make room on a device for one job: which jobs leave, which lanes shrink, which holders have to yield.

A plan changes nothing.  If it is not enough no job is asked for anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from carpool.core.memory.eviction import choose, promised, stays, takes_device
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.lane import Lane
from carpool.core.state.state import State


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that make room for one waiter; not ``enough``: even all of them would not do."""

    enough: bool
    evicted: list[Job]  # without a turn: their persistent memory can be moved out now
    absent: list[Job]  # their lanes need not hold their ephemeral memory now; they get it back before their turns
    held: list[Lane]  # lanes whose holders have to yield


def make_plan(state: State, device: Device, waiter: Job | None, missing: int, patient: bool = False) -> Plan:
    """Plan to free ``missing`` bytes the gentlest way: jobs without a turn, then lanes, then turns, the longest first.

    ``waiter``, ``patient``: see `choose`.
    """
    evicted = choose(state, device, waiter, missing, patient)
    missing -= sum(job.reserved.persistent for job in evicted)
    if missing <= 0:
        return Plan(True, evicted, [], [])
    absent, sizes = _shrunk(state, device, waiter)
    missing -= sum(state.lanes[lane].size - size for lane, size in sizes.items())
    held: list[Lane] = []
    for lane in _held(state, device, waiter):
        if missing <= 0:
            break
        holder = state.jobs[_holder(lane)]
        gained = sizes[lane.id] - _size(state, lane, waiter, False)
        gained += 0 if stays(state, holder) else holder.reserved.persistent
        if gained:
            held.append(lane)
            missing -= gained
    return Plan(missing <= 0, evicted, absent, held)


def awaits_weights(state: State, device: Device, service: Job, missing: int) -> bool:
    """Whether there will be ``missing`` bytes for a service when the weights that others use are not used any more."""
    missing -= device.weights_kept
    return missing <= 0 or (device.oversubscribed and make_plan(state, device, service, missing).enough)


def _shrunk(state: State, device: Device, waiter: Job | None) -> tuple[list[Job], dict[int, int]]:
    """Return the jobs that could do without their share of their lanes now, and the size of each lane without them."""
    jobs = [state.jobs[number] for number in sorted(device.jobs)]
    absent = [job for job in jobs if job.attached and job.reserved.ephemeral and not _stays(state, job, waiter)]
    sizes = {lane: _size(state, state.lanes[lane], waiter, True) for lane in sorted(device.lanes)}
    return sorted(absent, key=lambda job: (-job.reserved.ephemeral, -job.placed)), sizes


def _size(state: State, lane: Lane, waiter: Job | None, held: bool) -> int:
    """Bytes that a lane needs for the jobs that stay, with its holder or without."""
    members = (state.jobs[number] for number in sorted(lane.jobs))
    stay = (job for job in members if not job.attached or _stays(state, job, waiter))
    return max((job.reserved.ephemeral for job in stay if held or job.id != lane.holder), default=0)


def _stays(state: State, job: Job, waiter: Job | None) -> bool:
    """Whether the job needs its share of its lane.

    So does a job that waits: it may have got the turn from the holder already, unknown to the core.
    """
    lane = state.lane_of(job)
    named = job.wanted and lane is not None and lane.holder is not None
    return job is waiter or job.holds or takes_device(state, job) or named or promised(state, job)


def _held(state: State, device: Device, waiter: Job | None) -> list[Lane]:
    """Return the lanes in which other jobs compute, the longest turn first."""
    lanes = [state.lanes[number] for number in device.lanes]
    kept = (None, device.exclusive_holder, None if waiter is None else waiter.id)
    held = [lane for lane in lanes if lane.holder not in kept and not lane.serves]
    return sorted(held, key=lambda lane: (lane.turn_us, lane.id))


def _holder(lane: Lane) -> int:
    assert lane.holder is not None
    return lane.holder
