"""Serving jobs that need memory to go on: requests to grow, and jobs whose memory is in the host store.

Waiters are served in order of age; before them comes the one newcomer that may grow, before that an exclusive job, and
first of all a holder that cannot yield before it has its memory.  Free memory goes to the first waiter.  Where that is
not enough, jobs without a turn are evicted (`make_plan`), then lanes give up what their absent jobs need, then
holders of other turns are asked for their turns when their quantum is over.  A waiter that is not served blocks no
other: a smaller need may be met before a larger one, but what leaves for one waiter is kept for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from carpool.core.memory import clearing, preemption
from carpool.core.memory.deadlock import break_deadlock
from carpool.core.memory.eviction import Plan, awaits_weights, make_plan, next_change, pin_ahead, storable
from carpool.core.memory.exclusive import waive
from carpool.core.memory.grants import at_ease, drop_estimate, grant, pinned_engines
from carpool.core.memory.requests import fitting, may_grow
from carpool.core.memory.residency import bring_back, offload, set_aside
from carpool.core.metering.usage import attained, restore_us, there_and_back_us, worth_us
from carpool.core.model import JobId, Memory
from carpool.core.state.amounts import needed, needed_in_all, of_class
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job, WaitState
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.turns.engines import in_recess
from carpool.core.turns.order import heads, touch_lanes


@dataclass(slots=True)
class Room:
    """The memory that is there for the waiters that have not been served yet."""

    coming: int  # bytes that are leaving the device
    taken: bool = False  # an earlier waiter waits for these bytes, and for all that is free
    awaited: bool = False  # a service waits until weights are not used any more: no others are promised


def serve(state: State, device: Device) -> None:
    """Answer the waiters that can be answered, make room for the rest, and break a deadlock if nothing moves."""
    if at_ease(state, device):
        state.timers.cancel_each(("retry", "deadlock"), device.spec.id)
        return
    before, device.short = device.short, None
    earlier = set(device.waiters)
    device.waiters.clear()
    for lane in device.lanes:
        state.lanes[lane].waiter = None
    clearing.empty(state, device)
    clearing.relieve(state, device)
    preemption.size_up(state, device)
    jobs = [state.jobs[number] for number in sorted(device.jobs)]
    room = Room(sum(job.reserved.persistent for job in jobs if _leaves(state, job)))
    for job in _waiters(state, device):
        _serve(state, device, job, room)
    _serve_stranded(state, device, room)
    held_up = clearing.exclusive_holder_paused(state, device) or _exclusive_beside_pinned(state, device)
    if held_up or device.exclusive_holder not in device.waiters:
        waive(state, device, held_up)
    if device.excluding:
        preemption.advance(state, device)
        touch_lanes(state, device)
    _end_waits(state, earlier - device.waiters)
    _note_shortage(state, device, before)
    _set_retry(state, device)
    break_deadlock(state, device, kept=room.taken)
    pin_ahead(state, device)


def _end_waits(state: State, numbers: set[JobId]) -> None:
    for job in map(state.jobs.get, numbers):
        if job is not None:
            job.wait = WaitState.NONE


def _note_shortage(state: State, device: Device, before: JobId | None) -> None:
    """Record since when a job lacks memory that no other can give: then no job is placed.

    ``before``: which job lacked memory last.
    """
    if device.short is not None and before is None:
        device.short_since_us = state.now
    if device.short is None and before is not None:
        state.admit_all = True


def _waiters(state: State, device: Device) -> list[Job]:
    """Return the jobs that wait for memory, in order: requests, and the first of each lane if its memory is away.

    Holders that cannot yield come first: no other job can have their turn or their memory before.  Then comes the
    exclusive job; of the jobs that it keeps out, only holders, which need to go on until they can yield.  Then come
    services, the one that computes first.
    """
    ages: dict[JobId, int] = {}
    for sequence, number, _ in device.requests:
        job = state.jobs[number]
        if job.holds or not state.kept_out(job):
            ages[number] = min(sequence, ages.get(number, sequence))
    for number in [*heads(map(state.lanes.__getitem__, device.lanes)), *device.exclusive_jobs[:1]]:
        job = state.jobs[number]
        if (job.offloaded or job.weights_unplaced) and job.turn_key is not None and not in_recess(state, device, job):
            ages[number] = job.turn_key[2]

    def key(number: JobId) -> tuple[bool, bool, bool, bool, bool, int]:
        service = state.jobs[number].serves
        waits = service and number != device.exclusive_turn
        alone, grows = number == device.exclusive_holder, number == device.grower
        return (not _keeps_turn(state.jobs[number]), not alone, not service, waits, not grows, ages[number])

    return [state.jobs[number] for number in sorted(ages, key=key)]


def _serve_stranded(state: State, device: Device, room: Room) -> None:
    """Give what is free to jobs that lack their share of a lane, are not the first there, and cannot leave.

    Otherwise several could keep each other, and the first, waiting for ever.
    """
    behind = (state.jobs[key[-1]] for name in sorted(device.lanes) for key in state.lanes[name].queue[1:])
    for job in [job for job in behind if job.offloaded and job.pinned is not None and not job.offload_asked]:
        if (limit := _limit(state, job, room)) is not None:
            _grant(state, job, limit)


def _serve(state: State, device: Device, job: Job, room: Room) -> None:
    """Serve one waiter."""
    state.touch_lane(job.lane)  # if it waits on and holds a turn, other jobs may have the turn
    if _leaves(state, job) or (job.pending and not job.offloaded and not _may_ask(device, job)):
        return
    if job.pending and not job.memory_known and device.grower is None:
        device.grower = job.id
    if job.suspends:
        _serve_suspended(state, device, job, room)
        return
    limit = _limit(state, job, room)
    if limit is not None:
        _grant(state, job, limit)
    else:
        _wait(state, device, job, room)


def _serve_suspended(state: State, device: Device, job: Job, room: Room) -> None:
    """Serve a checkpoint job, which needs all memory that is there, and that no other job computes."""
    if preemption.outranked(state, device, job):
        device.waiters.add(job.id)
        job.wait = WaitState.BLOCKED
        return
    lanes = preemption.in_the_way(state, device, job)
    limit = _limit(state, job, room)
    if limit is not None and not lanes:
        _grant(state, job, limit)
        preemption.give_device(state, device, job)
        return
    if limit is None:
        _wait(state, device, job, room)
    if lanes and (limit is not None or job.wait in (WaitState.MOVING, WaitState.TURNS)):
        device.waiters.add(job.id)
        _ask_holders(state, job, room, lanes)


def _wait(state: State, device: Device, job: Job, room: Room) -> None:
    """Let the job wait, and make room for it if jobs may be evicted."""
    device.waiters.add(job.id)
    if job.weights_unplaced and room.awaited:  # no more weights are promised; what is free is for jobs that have theirs
        _fall_short(state, device, job, WaitState.BLOCKED)
        return
    missing = weights.total_cost(state, device, job) - (0 if room.taken else device.headroom)
    if missing <= room.coming:
        _wait_for(job, room, missing)
    elif device.oversubscribed:
        _make_room(state, device, job, room, missing)
    else:
        _fall_short(state, device, job, WaitState.BLOCKED)
    room.awaited |= job.wait is WaitState.BLOCKED and job.serves and awaits_weights(state, device, job, missing)


def _leaves(state: State, job: Job) -> bool:
    """Whether the job is being offloaded.  One that got a turn before it heard of that keeps it until the turn ends."""
    return job.offload_asked and not job.holds


def _wait_for(job: Job, room: Room, missing: int) -> None:
    """Let the job wait for memory that is leaving the device already."""
    job.wait = WaitState.MOVING
    room.coming, room.taken = max(0, room.coming - missing), True


def _fall_short(state: State, device: Device, job: Job, why: WaitState) -> None:
    """Note that nothing can be done for the job now; one that would not even fit alone keeps no other waiting.

    Nor does one for which pinned engines leave too little.
    """
    job.wait = why
    if _fits_beside_pinned(state, device, job):
        device.short = device.short or job.id


def _fits_beside_pinned(state: State, device: Device, job: Job) -> bool:
    """Whether the job fits beside pinned engines, whose memory leaves only when they end."""
    others = (each for each in pinned_engines(state, device) if each is not job and not each.pending)
    return needed_in_all(job) + sum(each.reserved.persistent for each in others) <= device.usable


def _exclusive_beside_pinned(state: State, device: Device) -> bool:
    """Whether the exclusive job waits for memory that pinned engines have: no job would compute until they end."""
    holder = device.exclusive_holder
    if holder not in device.waiters or not pinned_engines(state, device):
        return False
    return not _fits_beside_pinned(state, device, state.jobs[holder])


def _keeps_turn(job: Job) -> bool:
    """Whether the job cannot yield before it has its memory."""
    return any(request.keeps_turn for request in job.pending.values())


def _may_ask(device: Device, job: Job) -> bool:
    inside = all(request.total <= of_class(job.reserved, kind) for kind, request in job.pending.items())
    return inside or may_grow(device, job) or _keeps_turn(job)


def _limit(state: State, job: Job, room: Room) -> Memory | None:
    """Return the limits that the job can have at once; None: there is not enough memory."""
    limit = _fits(state, job, room)
    if limit is None and drop_estimate(state, job):
        return _fits(state, job, room)  # the estimate was wrong; what was reserved for it may be what is missing
    return limit


def _fits(state: State, job: Job, room: Room) -> Memory | None:
    device = state.device_of(job)
    assert device is not None
    if job.weights_unplaced and room.awaited:
        return None
    if job.offloaded or job.weights_unplaced or len(job.pending) > 1 or room.taken:
        more = weights.total_cost(state, device, job)
        return needed(job) if more <= (0 if room.taken else device.free) else None
    return fitting(state, job, next(iter(job.pending.values())))


def _grant(state: State, job: Job, limit: Memory) -> None:
    device = state.device_of(job)
    assert device is not None
    grows = job.offloaded or bool(job.pending)
    if grows and (job.offloaded or job.wait is not WaitState.NONE):
        _promise(state, job)
    if job.offloaded:
        bring_back(job)
    job.wait = WaitState.NONE
    if job.weights_unplaced:
        weights.place(state, device, job)
    if grows:
        grant(state, job, limit, tuple(job.pending))


def _promise(state: State, job: Job) -> None:
    """Keep the job's memory until the moves for it were worth their price: others left, or it is moved back."""
    device = state.device_of(job)
    assert device is not None
    job.promised_us = state.now
    back = job.carried(job.stored.persistent)
    if back:
        job.restoring_us = restore_us(device, back)
        price = there_and_back_us(device, back)
        job.stays_us = attained(state, job) + worth_us(price, state.settings.max_move_share_ppm)


def _make_room(state: State, device: Device, job: Job, room: Room, missing: int) -> None:
    """Evict other jobs, or ask for their turns, if that makes enough room."""
    plan = make_plan(state, device, job, missing - room.coming)
    evicted = _leaving_now(plan, plan.evicted)
    if not plan.enough or not storable(state, evicted):
        _fall_short(state, device, job, WaitState.STORE if plan.enough else WaitState.BLOCKED)
        return
    for victim in evicted:
        offload(state, victim)
    for absent in _leaving_now(plan, plan.absent):
        set_aside(state, absent, Memory(absent.limit.persistent, 0))
    if plan.held:
        _ask_holders(state, job, room, plan.held)
        return
    limit = None if evicted or room.coming or job.suspends else _limit(state, job, room)
    if limit is None:
        _wait_for(job, room, missing)
    else:  # shrinking lanes was enough
        device.waiters.discard(job.id)
        _grant(state, job, limit)


def _leaving_now(plan: Plan, jobs: list[Job]) -> list[Job]:
    """While turns are waited for, only jobs that yielded for this one leave; the others may use the time."""
    return [job for job in jobs if job.gave_way] if plan.held else jobs


def _ask_holders(state: State, job: Job, room: Room, lanes: list[Lane]) -> None:
    """Ask holders for their turns.  What is free is kept for the job: otherwise they would take it again in turns."""
    job.wait = WaitState.TURNS if job.suspends else WaitState.BLOCKED
    room.coming, room.taken = 0, True
    for lane in lanes:
        if lane.waiter is None:
            lane.waiter = job.id
            state.touch_lane(lane.id)


def _set_retry(state: State, device: Device) -> None:
    key = ("retry", device.spec.id)
    due = next_change(state, device) if device.waiters or device.shortfall else clearing.next_attempt(state, device)
    if due is None:
        state.timers.cancel(key)
    else:
        state.timers.set(key, due)
