"""Lane assignment after Salus, algorithm 1 (section 3.3 of the paper), and the coming and going of lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from carpool.core.commands import CloseLane, OpenLane
from carpool.core.memory.grants import free_on, freed
from carpool.core.memory.idle_engines import may_end
from carpool.core.metering import co_runners
from carpool.core.metering.views import device_view, lazy_view
from carpool.core.model import LaneId, Memory, Oversubscribe, Reason, Sharing
from carpool.core.policies.base import BasePolicy
from carpool.core.state.amounts import join, needed
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job
from carpool.core.state.seat_states import NOTHING
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.units import format_size

#: Timers that are about a lane: none of them may go off when the lane is closed.
LANE_TIMERS = ("yield", "forced", "pause")

#: Makes the reason why a job has to wait, on demand: most refusals are never read.
Refusal = Callable[[], Reason]


@dataclass(frozen=True, slots=True)
class Place:
    """A lane that exists, or (None) a new one, and what is reserved for the job there."""

    lane: LaneId | None
    memory: Memory
    crowded: bool = False  # there is no memory for it yet: nothing is reserved


def may_open(state: State, device: Device, own: int, mine: int) -> bool:
    """Whether an owner of ``mine`` lanes, ``own`` of which are for jobs of the same sort, may have another.

    Policy and settings bound the lanes of each owner, because owners never share one: a user's idle job must not keep
    another user waiting.  The device's own bound counts all.
    """
    if device.spec.oversubscribe is Oversubscribe.ON and own:
        return False
    if device.spec.sharing is Sharing.MPS and len(device.lanes) > mine:
        return False
    most, limit = _most_lanes(state, device), state.settings.max_lanes
    if (most is not None and own >= most) or (limit is not None and own >= limit):
        return False
    return device.spec.max_lanes is None or len(device.lanes) < device.spec.max_lanes


def _most_lanes(state: State, device: Device) -> int | None:
    """Ask the policy for its bound; no view is made for one that is the same everywhere."""
    policy = state.policy
    if isinstance(policy, BasePolicy) and type(policy).lanes is BasePolicy.lanes:
        return policy.most_lanes
    return policy.lanes(lazy_view(state), device_view(state, device))


def may_have_own(state: State, device: Device, job: Job) -> bool:
    """Whether the job could get a lane of its own on the device, as far as the number of lanes goes."""
    mine = [lane.serves for lane in map(state.lanes.__getitem__, device.lanes) if lane.owner == job.spec.owner]
    return may_open(state, device, mine.count(job.serves), len(mine))


def find_place(state: State, device: Device, job: Job, need: Memory, beside: int = 0) -> Place | Refusal:
    """Find a lane for a job that needs P persistent and E ephemeral bytes; or return why it has to wait.

    ``beside``: bytes that the job needs in addition and that are no grant.

    1. A new lane of size E, if P + E is free and the policy allows another lane.
    2. The smallest lane of the same owner with room for E, if P is free.
    3. The smallest lane of the same owner that can grow to E.
    4. On a device that may be oversubscribed: any of these places that the job fits into together with the largest job
       of each other lane.  Engines and their lanes do not count, as they take turns with all others.  Nothing is
       reserved for the job there: it gets its memory when others have left.

    A job of unknown size comes with P = E = 0 and gets the largest lane of its owner, where growth is least likely.
    Where jobs need more than the device has, device and host store must be able to hold what all of them keep.
    """
    mine = [lane for lane in map(state.lanes.__getitem__, device.lanes) if lane.owner == job.spec.owner]
    own = _of_sort(mine, job.serves)
    another = may_open(state, device, len(own), len(mine))
    if not own and not another:
        return partial(_no_lane if mine else _other_owner, device)
    place = _free_place(max(0, device.headroom - beside), job, need, own, another)
    if not device.oversubscribed:
        return place or partial(_no_room, state, device, need, own[-1].size if own else None)
    if not _storable(state, device, need):
        return partial(_store_full, state, need)
    return place or _crowded_place(state, device, job, need, own, another, beside)


def _of_sort(lanes: list[Lane], services: bool) -> list[Lane]:
    """Return the lanes of services, or those of other jobs, the smallest first."""
    return sorted((lane for lane in lanes if lane.serves == services), key=lambda lane: (lane.size, lane.id))


def _free_place(free: int, job: Job, need: Memory, own: list[Lane], another: bool) -> Place | None:
    """Find a place with enough free memory at this moment; None: there is none."""
    if another and need.total <= free:
        return Place(None, need)
    if not job.memory_known and own:
        return Place(own[-1].id, need)
    for lane in own:
        if lane.size >= need.ephemeral and need.persistent <= free:
            return Place(lane.id, need)
    for lane in own:
        if need.persistent + max(0, need.ephemeral - lane.size) <= free:
            return Place(lane.id, need)
    return None


@dataclass(frozen=True, slots=True)
class Crowd:
    """What the jobs of a device need to compute beside one more: bytes by lane, without what is never moved."""

    largest: Mapping[LaneId, int]
    sum: int
    usable: int  # bytes of the device for them and the one more

    def room(self) -> int:
        """Return the most that one more job can need that takes turns with others for memory."""
        return self.usable - self.sum + max(self.largest.values(), default=0)


def crowd(state: State, device: Device) -> Crowd:
    """Return what the device's jobs need beside one that is no engine."""
    return state.device_order.kept(device, lambda: _crowd(state, device, engine=False))


def _crowd(state: State, device: Device, engine: bool) -> Crowd:
    lanes = [state.lanes[number] for number in device.lanes]
    largest = {lane.id: 0 if engine or _has_engine(state, lane) else largest_job(state, lane) for lane in lanes}
    usable = device.usable - sum(pinned(state.jobs[number]) for number in device.jobs)
    return Crowd(largest, sum(largest.values()), usable)


def _has_engine(state: State, lane: Lane) -> bool:
    """Whether the lane's jobs take turns with all others, so that no other has to fit beside them."""
    return lane.serves and any(state.jobs[number].is_engine for number in lane.jobs)


def _crowded_place(
    state: State, device: Device, job: Job, need: Memory, own: list[Lane], another: bool, beside: int
) -> Place | Refusal:
    """Find a place where the job takes turns with others for memory: every lane's next job fits."""
    there = _crowd(state, device, engine=True) if job.is_engine else crowd(state, device)
    usable = there.usable - beside
    if another and need.total + there.sum <= usable:
        return Place(None, NOTHING, crowded=True)
    for lane in sorted(own, key=lambda lane: (len(lane.jobs), lane.id)):
        others = there.sum - there.largest[lane.id]
        if max(need.total, there.largest[lane.id]) + others <= usable:
            return Place(lane.id, NOTHING, crowded=True)
    return partial(_no_room, state, device, need, own[-1].size if own else None)


def expected(job: Job) -> Memory:
    """Return the memory that a job needs to compute beside others, as far as is known."""
    if job.suspends:
        return NOTHING
    return join(join(needed(job), job.reserved), NOTHING if job.measured else job.estimate)


def largest_job(state: State, lane: Lane, beside: Job | None = None) -> int:
    """Bytes that the lane's next job may need at most, in all or ``beside`` a job; without what is never moved."""
    jobs = map(state.jobs.__getitem__, lane.jobs)
    together = (job for job in jobs if beside is None or not _take_turns(job, beside))
    return max((expected(job).total - pinned(job) for job in together), default=0)


def _take_turns(one: Job, other: Job) -> bool:
    """Whether one is an engine, whose requests pause the other, which is no service: these need not fit together."""
    return one.serves != other.serves and (one.is_engine or other.is_engine)


def pinned(job: Job) -> int:
    """Bytes that stay on the device also while others compute."""
    return job.reserved.persistent if job.pinned is not None else 0


def _storable(state: State, device: Device, need: Memory) -> bool:
    """Whether devices and host store can take what one more job keeps, if that does not fit on the device anyway.

    While one job leaves for another the store has to hold both, so the room of the two largest counts only there.
    Engines that may end keep nothing.
    """
    if state.settings.host_store is None or not need.persistent:
        return True
    here = sum(expected(state.jobs[number]).total for number in device.jobs)
    if here + need.total <= device.usable:
        return True
    jobs = (state.jobs[number] for each in state.devices.values() for number in each.jobs)
    placed = [expected(job).persistent for job in jobs if not may_end(job)]
    capacity = sum(each.usable for each in state.devices.values())
    room = max(0, capacity - 2 * max([*placed, need.persistent])) + state.settings.host_store
    return sum(placed) + need.persistent <= room


def _store_full(state: State, need: Memory) -> Reason:
    return Reason(
        "store",
        f"waiting for host memory: needs {format_size(need.persistent)}, and devices and host store"
        f" ({format_size(state.settings.host_store or 0)}) are reserved by running jobs",
    )


def _other_owner(device: Device) -> Reason:
    text = f"waiting for a lane: all {len(device.lanes)} of {device.spec.id} are another user's"
    return Reason("other_owner", text)


def _no_lane(device: Device) -> Reason:
    text = f"lanes open on {device.spec.id}: {len(device.lanes)}; services share no lane with other jobs"
    return Reason("no_lane", f"waiting for a lane: {text}")


def _no_room(state: State, device: Device, need: Memory, largest: int | None) -> Reason:
    lane = f", largest lane {format_size(largest)}" if largest is not None else ""
    return Reason(
        "memory",
        f"waiting for memory: needs {format_size(need.total)} ({format_size(need.persistent)} persistent),"
        f" {free_on(state, device)}{lane}",
    )


def enter(state: State, job: Job, device: Device, place: Place) -> Lane:
    """Put the job into its lane; a new lane is opened in the size that the job needs."""
    if place.lane is None:
        lane = Lane(state.next_lane, device.spec.id, job.spec.owner, place.memory.ephemeral, job.serves)
        state.next_lane += 1
        state.lanes[lane.id] = lane
        device.lanes.add(lane.id)
        device.lane_bytes += lane.size
        weights.give_way(state, device)
        state.emit(OpenLane(lane.id, device.spec.id, lane.owner, lane.size))
    else:
        lane = state.lanes[place.lane]
    lane.jobs.add(job.id)
    job.lane = lane.id
    co_runners.changed(state, lane)
    return lane


def leave(state: State, job: Job) -> None:
    """Remove the job, which holds neither memory nor the turn any more, from its lane; an empty lane is closed."""
    lane = state.lane_of(job)
    if lane is None:
        return
    co_runners.goes(state, job)
    lane.jobs.discard(job.id)
    job.lane = None
    if lane.jobs:
        return
    device = state.devices[lane.device]
    device.lane_bytes -= lane.size
    device.lanes.discard(lane.id)
    state.timers.cancel_each(LANE_TIMERS, lane.id)
    del state.lanes[lane.id]
    state.dirty_lanes.pop(lane.id, None)
    state.emit(CloseLane(lane.id))
    freed(state, device)
