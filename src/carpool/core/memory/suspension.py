"""Checkpoint jobs: on their device only during their turns, and then no other job has a turn there.

Such a job allocates without asking.  So its turn has the whole device: the others' turns have ended, what those jobs
keep is in the host store, and all that is left of the device is reserved for it.  When its turn ends the job has been
suspended, and its driver holds its memory.  The amount has been measured then: never is less reserved for the job
again.

Otherwise the job waits in the queue of its lane like any job, and for its memory like one that was offloaded.
"""

from __future__ import annotations

from carpool.core.commands import GrantMemory
from carpool.core.memory.grants import freed, reserve
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import Memory
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job
from carpool.core.state.seat_states import NOTHING, set_aside
from carpool.core.state.state import State
from carpool.core.turns.exclusive_turns import touch_lanes


def arrived(state: State, device: Device, job: Job) -> None:
    """Set the memory of the job's first turn aside, as if the job had been offloaded."""
    job.residency = set_aside(job.residency, share(state, device, job))


def share(state: State, device: Device, job: Job) -> Memory:
    """Return what to reserve for the job's turn: all that is there, and at least what its suspension measured."""
    others = (state.jobs[number] for number in device.jobs if number != job.id)
    fixed = sum(other.reserved.persistent for other in others if other.pinned is not None)
    return Memory(max(job.usage.persistent_live, state.settings.growth_step, device.usable - fixed))


def size_up(state: State, device: Device) -> None:
    """Update what suspended jobs can have, which changes with what others hold."""
    for job in (state.jobs[number] for number in sorted(device.excluding)):
        if job.offloaded and job.suspends:
            job.residency = set_aside(job.residency, share(state, device, job))


def outranked(state: State, device: Device, job: Job) -> bool:
    """Whether a job of another lane waits for its turn and comes first."""
    if job.urgent:
        return False
    view = lazy_view(state)
    own = state.policy.turn_key(view, job_view(state, job))
    lanes = (state.lanes[number] for number in device.lanes if number != job.lane)
    heads = (state.jobs[lane.queue[0][-1]] for lane in lanes if lane.queue)
    return any(head.serves or state.policy.turn_key(view, job_view(state, head)) < own for head in heads)


def in_the_way(state: State, device: Device, job: Job) -> list[Lane]:
    """Return the lanes in which other jobs compute."""
    lanes = [state.lanes[number] for number in sorted(device.lanes)]
    return [lane for lane in lanes if lane.holder not in (None, job.id)]


def comes(state: State, device: Device, job: Job) -> None:
    """Give the whole device to the job, whose turn follows at once: its memory is there, and no other computes."""
    device.exclusive_turn = job.id
    touch_lanes(state, device)


def left(state: State, job: Job) -> None:
    """Take the memory of a checkpoint job whose turn is over: it has been suspended, and is off the device."""
    device = state.device_of(job)
    if not job.suspends or device is None:
        return
    job.set(residency=set_aside(job.residency, NOTHING), limit=NOTHING, promised_us=None)
    state.emit(GrantMemory(job.id, NOTHING))
    reserve(state, job, NOTHING)
    job.residency = set_aside(job.residency, share(state, device, job))
    freed(state, device)
