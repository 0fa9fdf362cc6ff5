"""Pinning ahead: host memory for the first move of each job is made ready before the move is decided.

Pinning begins when the jobs of a device may need more together than it has.  From then on the bytes count as kept for
their jobs: within the budget, and dropped like everything that the store only keeps (`core.memory.eviction`).
"""

from __future__ import annotations

from carpool.core.commands import PinStore
from carpool.core.memory.eviction import stays
from carpool.core.memory.grants import keep_in_store
from carpool.core.memory.lanes import expected
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


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
    budget = state.settings.host_store
    return budget is None or state.store_kept + more <= budget
