"""Eviction: which jobs' memory leaves a device when another job needs it, and in which order.

The policy orders the victims (`Policy.victim_key`); this module says which jobs may be victims at all: a job without a
turn, whose memory is there and may be moved, which has not just been promised that it stays, which has had enough of
its turn since its memory came back (or does not want any, or is kept out by an exclusive job), and which does not come
before the waiter.  For a service, and for other programs, every job is evicted that is not a service and may be moved;
so is an engine that has no requests.

A plan makes room on a device for one job: which jobs leave, which lanes shrink, which holders have to yield.  It
changes nothing.  If it is not enough no job is asked for anything.

Host memory for the first move of each job is pinned before the move is decided.  Pinning begins when the jobs of a
device may need more together than it has.  From then on the bytes count as kept for their jobs: within the budget, and
dropped like everything that the store only keeps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from carpool.core.commands import DropStore, PinStore
from carpool.core.memory import idle_engines
from carpool.core.memory.grants import keep_in_store
from carpool.core.memory.lanes import expected
from carpool.core.memory.residency import RETRY_US, offload
from carpool.core.metering.usage import there_and_back_us
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import Micros
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns import order
from carpool.core.turns.engines import in_recess

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

    Fewer bytes if there are not enough.  ``waiter`` None: for memory outside of grants; ``patient``: the memory can
    wait as a job that is not a service waits.
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
    if at_once and job.rests and not job.wanted:
        return True
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
    """Return when an idle job may leave: once it has been off the device for as long as moving it takes (ski rental).

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
    if job.turn_key is None or waiter.holds or _in_recess(state, job):
        return False
    if job.serves or waiter.serves:
        return order.computes_before(job, waiter)
    lane = state.lane_of(waiter)
    if waiter.turn_key is not None and lane is not None and lane.id == job.lane:
        return job.turn_key < waiter.turn_key
    view = lazy_view(state)
    return state.policy.turn_key(view, job_view(state, job)) < state.policy.turn_key(view, job_view(state, waiter))


def _in_recess(state: State, job: Job) -> bool:
    device = state.device_of(job)
    return device is not None and in_recess(state, device, job)


def ahead_of(state: State, job: Job) -> int | None:
    """Return how many jobs of its lane compute before the job; None: it does not want to compute."""
    if job.turn_key is None:
        return 0 if job.pending else None
    lane = state.lane_of(job)
    assert lane is not None
    return bisect_left(lane.queue, job.turn_key) + (lane.holder is not None)


def storable(state: State, jobs: list[Job]) -> bool:
    """Whether the host store can take all these jobs.

    What it only keeps for jobs whose memory is back is dropped first; if that is not enough, idle engines may end.
    """
    more = sum(max(0, job.reserved.persistent - job.kept) for job in jobs)
    if _has_room(state, more):
        return True
    idle = [job for job in _kept_for_nothing(state) if job not in jobs]
    if (missing := _beyond(state, more - sum(job.kept for job in idle))) > 0:
        idle_engines.end(state, jobs, missing)
        return False
    for job in idle:
        if _has_room(state, more):
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
    """Return when the first job that is protected from eviction for a time loses that protection; None: no such job."""
    moments = chain.from_iterable(_moments(state, state.jobs[number]) for number in device.jobs)
    return min((moment for moment in moments if moment > state.now), default=None)


def _moments(state: State, job: Job) -> Iterator[Micros]:
    """Yield the moments at which a job that may not be evicted may be."""
    yield job.unmovable_us
    if job.promised_us is not None:
        yield job.promised_us + PROMISE_US
    if job.attached and job.reserved.persistent and not (job.wanted or job.holds):
        yield _idle_enough_us(state, job)


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
    held = [lane for lane in lanes if lane.holder not in kept and _gives_way(state, lane)]
    return sorted(held, key=lambda lane: (lane.turn_us, lane.id))


def _gives_way(state: State, lane: Lane) -> bool:
    """Whether the holder lets others compute sooner or later, for which it need not be done."""
    return not lane.serves or state.jobs[_holder(lane)].is_engine


def _holder(lane: Lane) -> int:
    assert lane.holder is not None
    return lane.holder


def pin_ahead(state: State, device: Device) -> None:
    """Prepare the store of each job that may have to move, in the order in which the jobs were placed."""
    if not (device.spec.pins and device.oversubscribed and _wanted(state, device) > device.usable):
        return
    for job in sorted((state.jobs[number] for number in device.jobs), key=lambda job: job.placed):
        size = job.limit.persistent
        if size > job.kept and _moves(state, job) and _has_room(state, size - job.kept):
            keep_in_store(state, job, size)
            state.emit(PinStore(job.id, size))


def _wanted(state: State, device: Device) -> int:
    """Bytes that the device would need for all of its jobs to be there at once."""
    jobs = {number: expected(state.jobs[number]) for number in device.jobs}
    lanes = (state.lanes[number].jobs for number in device.lanes)
    ephemeral = sum(max((jobs[number].ephemeral for number in lane), default=0) for lane in lanes)
    return sum(memory.persistent for memory in jobs.values()) + ephemeral


def _moves(state: State, job: Job) -> bool:
    return job.attached and not (job.excludes or job.offloaded or job.offload_asked or stays(state, job))


def _has_room(state: State, more: int) -> bool:
    """Whether the host store has room for ``more`` bytes."""
    return _beyond(state, more) <= 0


def _beyond(state: State, more: int) -> int:
    """Bytes by which ``more`` bytes are too many for the host store."""
    budget = state.settings.host_store
    return 0 if budget is None else state.store_kept + more - budget
