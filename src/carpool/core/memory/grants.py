"""Memory by measurement: reservations for a job, its grants, and the memory that it returns.

A job's *limit* is what its seat says; its *reservation* is what counts against the device and is never smaller.  They
differ only while an estimate (a hint, or an earlier run) has not been checked: then the estimate is reserved and the
limit grows inside it, without waiting.  Limits of a job that may compute are never lowered, because it may allocate up
to them at any moment (those of a job without a turn may be put aside until its next one); reservations may be lowered
at any time.  So an estimate that is too high costs nothing for long, and can never be the reason for an out-of-memory
error.
"""

from __future__ import annotations

from collections.abc import Iterator

from carpool.core.commands import GrantMemory, ResizeLane
from carpool.core.metering import warmup
from carpool.core.model import JobPhase, Memory, MemoryClass
from carpool.core.state.amounts import join, of_class, with_class
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import NOTHING, RESIDENT, set_aside
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.turns.order import rank
from carpool.core.units import format_size


def reserve(state: State, job: Job, memory: Memory) -> None:
    """Set a job's reservation.

    A lane that grows does so at once, before the job is told of a higher limit; call `trim_lane` after limits have been
    lowered.
    """
    device, lane = state.device_of(job), state.lane_of(job)
    assert device is not None
    device.persistent += memory.persistent - job.reserved.persistent
    job.reserved = memory
    grows = lane is not None and memory.ephemeral > lane.size
    if lane is not None and grows:
        device.lane_bytes += memory.ephemeral - lane.size
        lane.size = memory.ephemeral
    if device.weight_bytes:
        weights.give_way(state, device)
    if lane is not None and grows and not state.restarting:
        state.emit(ResizeLane(lane.id, lane.size))


def at_ease(state: State, device: Device) -> bool:
    """Whether no job of the device waits for memory, or has anything else to be served."""
    waits = device.requests or device.waiters or device.short is not None or device.expected is not None
    if waits or device.exclusive_to or device.excluding or device.exclusive_waived or device.spec.pins:
        return False
    if device.shortfall or any(lane.waiter is not None or lane.reclaimed for lane in lanes_of(state, device)):
        return False
    jobs = map(state.jobs.__getitem__, device.jobs)
    return all(job.residency is RESIDENT and not job.pending and not job.paused for job in jobs)


def lanes_of(state: State, device: Device) -> Iterator[Lane]:
    """Yield the lanes of the device, in any order."""
    return map(state.lanes.__getitem__, device.lanes)


def trim_lane(state: State, job: Job) -> None:
    """Shrink the job's lane to what its largest job needs."""
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
    """Have waiters and queued jobs served anew: memory or a place has become free."""
    state.touch_device(device.spec.id)
    state.admit_all = True
    device.changed()


def release(state: State, job: Job) -> None:
    """Take all device memory back from the job, and drop its requests."""
    device = state.device_of(job)
    if device is None:
        return
    if job.limit != NOTHING:
        job.limit = NOTHING
        if job.phase not in (JobPhase.ENDED, JobPhase.QUEUED):
            state.emit(GrantMemory(job.id, NOTHING))
    forget_requests(state, job)
    job.set(residency=RESIDENT, wait=WaitState.NONE, promised_us=None)
    device.waiters.discard(job.id)
    if job.kept:
        _let_others_store(state)
    keep_in_store(state, job, 0)
    reserve(state, job, NOTHING)
    trim_lane(state, job)
    stop_growing(state, job)
    freed(state, device)


def keep(state: State, job: Job, size: int) -> None:
    """Leave ``size`` bytes of the job's persistent memory to its processes without a seat, which have them."""
    if size:
        job.limit = Memory(size, 0)
        reserve(state, job, job.limit)
        state.emit(GrantMemory(job.id, job.limit))


def keep_in_store(state: State, job: Job, kept: int) -> None:
    """Record that ``kept`` bytes of the host store are kept for the job, whether they are in use or not."""
    state.store_kept += kept - job.kept
    job.kept = kept


def _let_others_store(state: State) -> None:
    """Have jobs served anew that wait for room in the host store, on whatever device."""
    for name, device in state.devices.items():
        if any(state.jobs[waiter].wait is WaitState.STORE for waiter in device.waiters):
            state.touch_device(name)


def forget_requests(state: State, job: Job) -> None:
    """Drop the job's requests for memory: it has been answered, or is gone."""
    device = state.device_of(job)
    if device is not None and job.pending:
        device.requests = [entry for entry in device.requests if entry[1] != job.id]
        job.pending = {}
        rank(state, job)
        freed(state, device)


def answered(device: Device, job: Job, kind: MemoryClass) -> None:
    """Drop one request of the job."""
    job.pending = {other: request for other, request in job.pending.items() if other is not kind}
    device.requests = [entry for entry in device.requests if entry[1:] != (job.id, kind)]


def stop_growing(state: State, job: Job) -> None:
    """Let another job grow on the device, if this job was the one that grows."""
    device = state.device_of(job)
    if device is not None and device.grower == job.id:
        device.grower = None
        freed(state, device)


def grant(state: State, job: Job, limit: Memory, answers: tuple[MemoryClass, ...]) -> None:
    """Raise a job's limits and answer its requests."""
    if job.packs:
        reserve(state, job, Memory(job.reserved.persistent, 0))
        trim_lane(state, job)
        reserve(state, job, limit)
    else:
        reserve(state, job, join(limit, job.reserved))
    job.limit = limit
    device = state.device_of(job)
    assert device is not None
    warmup.used(state, device, job)
    for kind in answers or (None,):
        state.emit(GrantMemory(job.id, limit, kind))
    for kind in set(job.pending).intersection(answers):
        answered(device, job, kind)
    if not job.holds and not job.wanted:
        job.idle_since_us = state.now
    rank(state, job)
    state.touch_lane(job.lane)
    if device.requests or device.waiters:
        state.touch_device(device.spec.id)


def returned(state: State, job: Job, kind: MemoryClass, total: int) -> None:
    """Lower the job's limit and reservation to ``total``, after it gave memory back by itself."""
    if total < of_class(job.stored, kind):
        job.residency = set_aside(job.residency, with_class(job.stored, kind, total))
    if total >= of_class(job.limit, kind):
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
    """Reserve no more for the job than it has been granted.  False if nothing more was reserved."""
    if job.reserved == job.limit or job.offloaded:
        return False
    reserve(state, job, job.limit)
    trim_lane(state, job)
    return True


def measured(state: State, job: Job) -> None:
    """Mark the job as measured: its estimate gives way to what it really uses, and another job may grow."""
    job.measured = True
    stop_growing(state, job)
    device = state.device_of(job)
    if device is None:
        return
    warmup.used(state, device, job)
    if drop_estimate(state, job):
        freed(state, device)


def pinned_engines(state: State, device: Device) -> list[Job]:
    """Return the engines whose memory stays on the device because they are pinned."""
    jobs = (state.jobs[number] for number in sorted(device.excluding))
    return [job for job in jobs if job.is_pinned and not job.paused and job.reserved.persistent]


def free_on(state: State, device: Device) -> str:
    """Say how much is free (``free 1.2 GiB on cuda0``), and what is pinned, in use otherwise, or kept for others."""
    in_use, due = device.unmanaged, max(0, device.contexts_due - device.spare)
    kept = device.spec.capacity - device.usable - in_use - due
    parts = [f"{format_size(in_use)} in use that Carpool has not granted"] if in_use else []
    parts += [f"{format_size(due)} kept for contexts of jobs that start"] if due else []
    parts += [f"{format_size(kept)} kept for other programs"] if kept > 0 else []
    parts += [
        f"{format_size(engine.reserved.persistent)} of job {engine.number}, a pinned engine"
        for engine in pinned_engines(state, device)
    ]
    beside = f" ({', '.join(parts)})" if parts else ""
    return f"free {format_size(device.free)} on {device.spec.id}{beside}"
