"""Requests for memory: which are answered at once, which wait, which are refused; and how much is granted.

Memory is granted with a little to spare while there is plenty, so that requests are few, and exactly when it is scarce.
"""

from __future__ import annotations

from carpool.core.commands import DenyMemory, GrantMemory
from carpool.core.events import MemoryRequested
from carpool.core.memory.grants import answered, at_ease, forget_requests, free_on, freed, grant, stop_growing
from carpool.core.metering import warmup
from carpool.core.model import JobPhase, Memory, MemoryClass, Reason
from carpool.core.state.amounts import cost, held_by_others, join, of_class, with_class
from carpool.core.state.device import Device
from carpool.core.state.job import Job, Request
from carpool.core.state.state import State
from carpool.core.turns.order import rank
from carpool.core.units import format_size

#: Spare memory granted beyond a request: at most this fraction of the device, and only while a quarter of it is free.
#: Limits cannot be lowered again, so the spare must stay too small to matter to a job that needs the whole device.
SPARE_FRACTION = 64
PLENTY_FRACTION = 4
STOPPING = Reason("stopping", "the job is being stopped")
WITHDRAWN = Reason("withdrawn", "the job no longer waits for it")


def requested(state: State, job: Job, event: MemoryRequested) -> None:
    """Answer a request for memory, or let the job wait for it."""
    device, kind, total = state.device_of(job), event.memory_class, event.total
    assert device is not None
    job.set(denied=0, refused=None, grew_at_us=job.attained_us)
    warmup.seen_using(state, job)
    held = join(job.stored, job.limit)
    if not event.packs and not job.offloaded and total <= of_class(held, kind):
        state.emit(GrantMemory(job.id, job.limit, kind))  # granted meanwhile
        return
    if event.optional:
        _answer_optional(state, job, kind, total)
        return
    alone = Memory(total) if event.packs else with_class(held, kind, max(total, of_class(held, kind)))
    beside = job.usage.fixed + (0 if job.demand is None else job.demand.size) + device.context_of(job.id)
    if alone.total + beside > device.spec.capacity:
        job.denied = device.spec.capacity
        _refuse(state, job, kind, _too_large(device, alone, beside), event.alive)
        return
    _let_wait(
        state, device, job, Request(kind, total, state.number(), event.keeps_turn and job.holds, event.packs), event
    )


def _let_wait(state: State, device: Device, job: Job, request: Request, event: MemoryRequested) -> None:
    """Let the job wait for what it requests, unless it is being stopped, or settings say that no job waits."""
    kind = request.memory_class
    if not job.pending and _inside(state, device, job, request):
        return
    job.pending = {**job.pending, kind: request}
    if job.phase is JobPhase.STOPPING:
        _answer_stopping(state, device, job, request)
        return
    if state.settings.refuse_growth and not (job.offloaded or job.offload_asked):
        _answer_at_once(state, job, request, event.alive)
        return
    device.requests = [entry for entry in device.requests if entry[1:] != (job.id, kind)]
    device.requests.append((request.sequence, job.id, kind))
    rank(state, job)
    # Its lane is looked at after that: a holder whose request is granted at once keeps its turn.
    state.touch_device(device.spec.id)


def _inside(state: State, device: Device, job: Job, request: Request) -> bool:
    """Grant at once what is reserved for the job already, where no other job waits; False: it has to wait."""
    kind = request.memory_class
    if job.phase is JobPhase.STOPPING or request.packs or request.total > of_class(job.reserved, kind):
        return False
    if job.weights_unplaced or not job.memory_known or not at_ease(state, device):
        return False
    limit = fitting(state, job, request)
    if limit is not None:
        grant(state, job, limit, (kind,))
    return limit is not None


def withdrawn(state: State, job: Job, kind: MemoryClass) -> None:
    """Drop a request that the job waits for no more; it may have been answered already."""
    device = state.device_of(job)
    if device is None or kind not in job.pending:
        return
    _deny(state, job, kind, WITHDRAWN)
    answered(device, job, kind)
    if not job.holds and not job.wanted:
        job.idle_since_us = state.now
        if not job.pending:
            stop_growing(state, job)  # nothing will be measured of it for now
    rank(state, job)
    state.touch_lane(job.lane)
    freed(state, device)


def _deny(state: State, job: Job, kind: MemoryClass, reason: Reason) -> None:
    """Refuse a request.  It counts as use of the device: a job that then never computes must not be waited for."""
    device = state.device_of(job)
    assert device is not None
    warmup.used(state, device, job)
    state.emit(DenyMemory(job.id, kind, reason))


def _refuse(state: State, job: Job, kind: MemoryClass, reason: Reason, alive: int | None) -> None:
    """Refuse for want of memory, with figures that tell whether a smaller job or a larger device is the remedy."""
    if alive is None:
        _deny(state, job, kind, reason)
        return
    others, granted = held_by_others(state, job), join(job.stored, job.limit).total
    job.refused = (
        f"{reason.text}; granted {format_size(granted)}, of which {format_size(alive)} are alive;"
        f" other jobs hold {format_size(others)}"
    )
    _deny(state, job, kind, Reason(reason.code, job.refused))


def _too_large(device: Device, alone: Memory, more: int) -> Reason:
    beside = f", beside {format_size(more)} that it has from the driver itself, or as weights" if more else ""
    return Reason(
        "too_large",
        f"the job would need {format_size(alone.total)} ({format_size(alone.persistent)} persistent"
        f" and {format_size(alone.ephemeral)} ephemeral){beside}, but {device.spec.id} holds"
        f" {format_size(device.spec.capacity)}",
    )


def _answer_stopping(state: State, device: Device, job: Job, request: Request) -> None:
    limit = None if job.offloaded or job.offload_asked else fitting(state, job, request)
    if limit is None:
        _deny(state, job, request.memory_class, STOPPING)
        answered(device, job, request.memory_class)
    else:
        grant(state, job, limit, (request.memory_class,))


def _answer_at_once(state: State, job: Job, request: Request, alive: int | None) -> None:
    """Grant the request if it fits now, else refuse it, as a driver would."""
    device, limit = state.device_of(job), fitting(state, job, request)
    assert device is not None
    if limit is None:
        text = f"needs {format_size(request.total)} of {request.memory_class} memory, {free_on(state, device)}"
        _refuse(state, job, request.memory_class, Reason("no_memory", text), alive)
        answered(device, job, request.memory_class)
    else:
        grant(state, job, limit, (request.memory_class,))


def _answer_optional(state: State, job: Job, kind: MemoryClass, total: int) -> None:
    device = state.device_of(job)
    assert device is not None
    wanted = with_class(job.limit, kind, total)
    if job.offloaded or job.offload_asked or device.short is not None or cost(state, job, wanted) > device.free:
        _deny(state, job, kind, Reason("no_memory", f"{device.spec.id} has only {format_size(device.free)} free"))
    else:
        grant(state, job, wanted, (kind,))


def may_grow(device: Device, job: Job) -> bool:
    """Whether the job may grow now.

    One job of unknown size grows at a time, unless others can be moved; jobs that are known, or alone, always may.
    """
    return (
        device.oversubscribed
        or job.memory_known
        or device.grower in (None, job.id)
        or device.exclusive_holder == job.id
    )


def fitting(state: State, job: Job, request: Request) -> Memory | None:
    """Return the limits that would answer a request now: some to spare if memory is plentiful, exact if it is scarce.

    None: not even the exact request fits.
    """
    device = state.device_of(job)
    assert device is not None
    for number in _sizes(state, device, job, request):
        wanted = Memory(number) if request.packs else with_class(job.limit, request.memory_class, number)
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


def give_up(state: State, job: Job, reason: Reason = STOPPING) -> None:
    """Refuse all requests of a job that is being stopped: an error lets it go on to its end."""
    for kind in tuple(job.pending):
        _deny(state, job, kind, reason)
    forget_requests(state, job)
