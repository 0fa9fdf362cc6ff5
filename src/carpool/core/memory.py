"""Memory by measurement: requests, grants, and whose turn it is to grow.

A job's *limit* is what its seat says; its *reservation* is what counts against the device and is never smaller.  They
differ only while an estimate (a hint, or an earlier run) has not been checked: then the estimate is reserved and the
limit grows inside it, without waiting.  Limits of an attached job are never lowered, because it may allocate up to them
at any moment; reservations are ours to lower.  So an estimate that is too high costs nothing for long, and can never be
the reason for an out-of-memory error.
"""

from __future__ import annotations

from carpool.core.commands import DenyMemory, GrantMemory, ResizeLane
from carpool.core.model import JobPhase, Memory, MemoryClass, Reason
from carpool.core.state import NOTHING, Device, Job, Request, State
from carpool.core.text import size
from carpool.core.turns import rank

PERSISTENT, EPHEMERAL = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL
#: Spare memory granted beyond a request: at most this fraction of the device, and only while a quarter of it is free.
#: Limits cannot be lowered again, so the spare must stay too small to matter to a job that needs the whole device.
SPARE_FRACTION = 64
PLENTY_FRACTION = 4
STOPPING = Reason("stopping", "the job is being stopped")


def _answer_stopping(state: State, job: Job, request: Request) -> None:
    limit = None if job.offloaded or job.offload_asked else fitting(state, job, request)
    if limit is None:
        state.emit(DenyMemory(job.id, request.memory_class, STOPPING))
    else:
        grant(state, job, limit, (request.memory_class,))


def of_class(memory: Memory, kind: MemoryClass) -> int:
    return memory.persistent if kind is PERSISTENT else memory.ephemeral


def with_class(memory: Memory, kind: MemoryClass, number: int) -> Memory:
    """The same memory with one class replaced."""
    return Memory(number, memory.ephemeral) if kind is PERSISTENT else Memory(memory.persistent, number)


def join(a: Memory, b: Memory) -> Memory:
    """The larger of two in each class."""
    return Memory(max(a.persistent, b.persistent), max(a.ephemeral, b.ephemeral))


def cost(state: State, job: Job, wanted: Memory) -> int:
    """Device bytes that more it takes to reserve ``wanted`` for a job: a lane grows only beyond its size."""
    lane = state.lane_of(job)
    lane_size = lane.size if lane is not None else 0
    return max(0, wanted.persistent - job.reserved.persistent) + max(0, wanted.ephemeral - lane_size)


def reserve(state: State, job: Job, memory: Memory) -> None:
    """Set a job's reservation.  A lane that grows does so at once, before anybody is told of a higher limit; call
    `trim_lane` after limits have been lowered.
    """
    device, lane = state.device_of(job), state.lane_of(job)
    assert device is not None
    device.persistent += memory.persistent - job.reserved.persistent
    job.reserved = memory
    if lane is not None and memory.ephemeral > lane.size:
        device.lane_bytes += memory.ephemeral - lane.size
        lane.size = memory.ephemeral
        if not state.restarting:
            state.emit(ResizeLane(lane.id, lane.size))


def trim_lane(state: State, job: Job) -> None:
    """The lane becomes as large as its largest job needs."""
    lane = state.lane_of(job)
    if lane is None:
        return
    needed = max((state.jobs[number].reserved.ephemeral for number in lane.jobs), default=0)
    if needed < lane.size:
        device = state.devices[lane.device]
        device.lane_bytes -= lane.size - needed
        lane.size = needed
        state.emit(ResizeLane(lane.id, needed))
        freed(state, device)


def freed(state: State, device: Device) -> None:
    """Memory or a place has become free: those who wait may have a chance."""
    state.touch_device(device.spec.id)
    state.admit_all = True


def release(state: State, job: Job) -> None:
    """The job uses no device memory any more."""
    device = state.device_of(job)
    if device is None:
        return
    if job.limit != NOTHING:
        job.limit = NOTHING
        if job.phase is not JobPhase.ENDED:
            state.emit(GrantMemory(job.id, NOTHING))
    forget_requests(state, job)
    job.stored, job.offloaded, job.offload_asked = NOTHING, False, False
    device.returning.discard(job.id)
    reserve(state, job, NOTHING)
    trim_lane(state, job)
    stop_growing(state, job)
    freed(state, device)


def forget_requests(state: State, job: Job) -> None:
    device = state.device_of(job)
    if device is not None and job.pending:
        device.waiting = [entry for entry in device.waiting if entry[1] != job.id]
        job.pending = {}
        rank(state, job)
        freed(state, device)


def stop_growing(state: State, job: Job) -> None:
    """Somebody else may grow on the device now."""
    device = state.device_of(job)
    if device is not None and device.grower == job.id:
        device.grower = None
        freed(state, device)


def requested(state: State, job: Job, kind: MemoryClass, total: int, optional: bool) -> None:
    """A request arrives."""
    device = state.device_of(job)
    assert device is not None
    job.touched = True
    held = job.stored if job.offloaded else job.limit
    if not job.offloaded and total <= of_class(held, kind):
        state.emit(GrantMemory(job.id, job.limit, kind))  # granted meanwhile
        return
    if optional:
        _answer_optional(state, job, kind, total)
        return
    alone = with_class(held, kind, max(total, of_class(held, kind)))
    if alone.total > device.spec.capacity:
        state.emit(DenyMemory(job.id, kind, _too_large(device, alone)))
        return
    request = Request(kind, total, state.number(), state.now)
    if job.phase is JobPhase.STOPPING:
        _answer_stopping(state, job, request)
        return
    device.waiting = [entry for entry in device.waiting if entry[1:] != (job.id, kind)]
    device.waiting.append((request.sequence, job.id, kind))
    job.pending = {**job.pending, kind: request}
    if job.offloaded:
        device.returning.add(job.id)
    rank(state, job)
    state.touch_device(device.spec.id)
    state.touch_lane(job.lane)


def _too_large(device: Device, alone: Memory) -> Reason:
    return Reason(
        "too_large",
        f"the job would need {size(alone.total)} ({size(alone.persistent)} persistent and {size(alone.ephemeral)}"
        f" ephemeral), but {device.spec.id} holds {size(device.spec.capacity)}",
    )


def _answer_optional(state: State, job: Job, kind: MemoryClass, total: int) -> None:
    device = state.device_of(job)
    assert device is not None
    wanted = with_class(job.limit, kind, total)
    if job.offloaded or job.offload_asked or device.short is not None or cost(state, job, wanted) > device.free:
        state.emit(DenyMemory(job.id, kind, Reason("no_memory", f"{device.spec.id} has only {size(device.free)} free")))
    else:
        grant(state, job, wanted, (kind,))


def grant(state: State, job: Job, limit: Memory, answers: tuple[MemoryClass, ...]) -> None:
    """Raise a job's limits and answer its requests."""
    reserve(state, job, join(limit, job.reserved))
    job.limit = limit
    device = state.device_of(job)
    assert device is not None
    device.warm.discard(job.id)
    for kind in answers or (None,):
        state.emit(GrantMemory(job.id, limit, kind))
    if any(kind in job.pending for kind in answers):
        job.pending = {kind: request for kind, request in job.pending.items() if kind not in answers}
        device.waiting = [entry for entry in device.waiting if entry[1] != job.id or entry[2] not in answers]
    if not state.holds(job) and not job.wanted:
        job.idle_since_us = state.now
    rank(state, job)
    state.touch_lane(job.lane)
    freed(state, device)


def may_grow(device: Device, job: Job) -> bool:
    """One job of unknown size grows at a time; whoever is known may always ask."""
    return job.known or device.grower in (None, job.id)


def fitting(state: State, job: Job, request: Request) -> Memory | None:
    """The limits that would answer a request now: with some to spare if memory is plentiful, exact if it is scarce."""
    device = state.device_of(job)
    assert device is not None
    for number in _sizes(state, device, job, request):
        wanted = with_class(job.limit, request.memory_class, number)
        if cost(state, job, wanted) <= device.free:
            return wanted
    return None


def _sizes(state: State, device: Device, job: Job, request: Request) -> tuple[int, ...]:
    step, capacity = state.settings.growth_step, device.spec.capacity
    rounded = -(-request.total // step) * step
    if device.free - (rounded - of_class(job.limit, request.memory_class)) < capacity // PLENTY_FRACTION:
        return (rounded, request.total)
    spare = min(request.total // 4, capacity // SPARE_FRACTION)
    return (-(-(request.total + spare) // step) * step, rounded, request.total)


def returned(state: State, job: Job, kind: MemoryClass, total: int) -> None:
    """The job gave memory back by itself: its limit and reservation shrink to ``total``."""
    if job.offloaded or total >= of_class(job.limit, kind):
        return
    kept_more = of_class(job.reserved, kind) > of_class(job.limit, kind)
    job.limit = with_class(job.limit, kind, total)
    state.emit(GrantMemory(job.id, job.limit))
    if not kept_more:
        reserve(state, job, with_class(job.reserved, kind, total))
    trim_lane(state, job)
    device = state.device_of(job)
    assert device is not None
    freed(state, device)


def drop_estimate(state: State, job: Job) -> bool:
    """Keep no more for the job than it has been granted.  False if nothing more was kept."""
    if job.reserved == job.limit or job.offloaded:
        return False
    reserve(state, job, job.limit)
    trim_lane(state, job)
    return True


def measured(state: State, job: Job) -> None:
    """Enough iterations have been seen: an estimate gives way to what the job really uses, and another job may grow."""
    job.measured = True
    stop_growing(state, job)
    device = state.device_of(job)
    if device is None:
        return
    device.warm.discard(job.id)
    if drop_estimate(state, job):
        freed(state, device)


def give_up(state: State, job: Job) -> None:
    """A job that is being stopped waits for no memory: an error lets it go on to its end."""
    for kind in tuple(job.pending):
        state.emit(DenyMemory(job.id, kind, STOPPING))
    forget_requests(state, job)
    device = state.device_of(job)
    if device is not None and not job.wanted:
        device.returning.discard(job.id)
