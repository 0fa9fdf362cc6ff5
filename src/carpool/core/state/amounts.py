"""Amounts of memory: by class, together, and what a job needs to go on."""

from __future__ import annotations

from carpool.core.model import Memory, MemoryClass
from carpool.core.state.job import Job
from carpool.core.state.seat_states import ResidencyState
from carpool.core.state.state import State


def of_class(memory: Memory, kind: MemoryClass) -> int:
    """Bytes of one class."""
    return memory.persistent if kind is MemoryClass.PERSISTENT else memory.ephemeral


def with_class(memory: Memory, kind: MemoryClass, number: int) -> Memory:
    """Return the same memory with one class replaced."""
    return Memory(number, memory.ephemeral) if kind is MemoryClass.PERSISTENT else Memory(memory.persistent, number)


def join(a: Memory, b: Memory) -> Memory:
    """Return the larger of two in each class."""
    return Memory(max(a.persistent, b.persistent), max(a.ephemeral, b.ephemeral))


def clipped(memory: Memory, most: int) -> Memory:
    """Reduce ``memory`` to ``most`` bytes in all, with its classes in the same proportion; less stays as it is."""
    if memory.total <= most:
        return memory
    persistent = memory.persistent * most // memory.total
    return Memory(persistent, most - persistent)


def cost(state: State, job: Job, wanted: Memory) -> int:
    """Bytes of the device that reserving ``wanted`` for a job takes in addition: a lane grows only beyond its size.

    A job that packs gives up what its lane has for it, so that the result may be negative.
    """
    if job.packs:
        return wanted.persistent - job.reserved.persistent - in_lane(state, job)
    lane = state.lane_of(job)
    lane_size = lane.size if lane is not None else 0
    return max(0, wanted.persistent - job.reserved.persistent) + max(0, wanted.ephemeral - lane_size)


def in_lane(state: State, job: Job) -> int:
    """Bytes by which its lane would be smaller without the job."""
    lane = state.lane_of(job)
    if lane is None:
        return 0
    others = (state.jobs[number].reserved.ephemeral for number in lane.jobs if number != job.id)
    return lane.size - max(others, default=0)


def held_by_others(state: State, job: Job) -> int:
    """Bytes of its device that are reserved for other jobs."""
    device = state.device_of(job)
    if device is None:
        return 0
    return device.persistent - job.reserved.persistent + device.lane_bytes - in_lane(state, job)


def ready(job: Job) -> bool:
    """Whether the job could compute at once if it had the turn."""
    return job.residency.state is ResidencyState.RESIDENT and not job.weights_unplaced


def needed_in_all(job: Job) -> int:
    """Bytes that the job must have to go on, with the weights of its turn."""
    return needed(job).total + (0 if job.demand is None else job.demand.size)


def needed(job: Job) -> Memory:
    """The limits that the job must have to go on: those it had before they were taken, and what it asked for since."""
    limit = join(job.stored, job.limit)
    for kind, request in job.pending.items():
        if request.packs:
            return Memory(request.total, 0)
        limit = join(limit, with_class(limit, kind, request.total))
    return limit
