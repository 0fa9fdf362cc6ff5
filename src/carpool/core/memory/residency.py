"""The moves of a job's memory off its device and back: the table `RESIDENCY` at the end.

A job that is asked to offload answers that its memory is in the host store, or that nothing was moved.  Where its
limits are only lowered, no answer is needed: the job has no turn.  Both times it gets its limits back before its next
turn. A checkpoint job is set aside whenever its turn is over (`core.memory.preemption`).
"""

from __future__ import annotations

from carpool.core.commands import GrantMemory, Offload
from carpool.core.events import Offloaded, OffloadFailed
from carpool.core.memory.grants import freed, keep_in_store, release, reserve, stop_growing, trim_lane
from carpool.core.model import Memory, Micros
from carpool.core.state import seat_states
from carpool.core.state.amounts import join
from carpool.core.state.job import Job
from carpool.core.state.seat_states import LEAVING, RESIDENT, Edge, LeavingAside, ResidencyState, Table
from carpool.core.state.state import State
from carpool.core.turns.order import rank

#: Causes that the core decides: ask for an offload, lower limits, give them back, end the job's use of the device.
OFFLOAD, SET_ASIDE, BRING_BACK, RELEASE = "offload", "set aside", "bring back", "release"
#: A job that could not be offloaded is not asked again for this long.
RETRY_US: Micros = 1_000_000


def offload(state: State, job: Job) -> None:
    """Ask the job to offload.  The store keeps what it needs for that until the job's process is gone."""
    RESIDENCY.act(job.residency.state, OFFLOAD)(state, job)


def set_aside(state: State, job: Job, limit: Memory) -> None:
    """Lower the limits of a job without a turn to ``limit``; it gets them back before its next one."""
    RESIDENCY.act(job.residency.state, SET_ASIDE)(state, job, limit)


def bring_back(job: Job) -> None:
    """Mark the job's memory as resident: what was set aside is going to be granted again."""
    RESIDENCY.act(job.residency.state, BRING_BACK)(job)


def offloaded(state: State, job: Job) -> None:
    """Record that all of the job's persistent memory is in the host store."""
    RESIDENCY.act(job.residency.state, Offloaded)(state, job)


def offload_failed(state: State, job: Job) -> None:
    """Record that an offload has failed, and nothing has been moved."""
    RESIDENCY.act(job.residency.state, OffloadFailed)(state, job)


# What events and decisions do to a job's memory


def _leave(state: State, job: Job) -> None:
    job.residency = LeavingAside(job.residency.stored) if job.residency.aside else LEAVING
    keep_in_store(state, job, max(job.kept, job.reserved.persistent))
    rank(state, job)
    state.touch_lane(job.lane)
    state.emit(Offload(job.id))


def _set_aside(state: State, job: Job, limit: Memory) -> None:
    stored = join(job.residency.stored, job.limit)
    job.set(residency=seat_states.set_aside(job.residency, stored), limit=limit, promised_us=None)
    state.emit(GrantMemory(job.id, limit))
    reserve(state, job, limit)
    trim_lane(state, job)
    rank(state, job)


def _bring_back(job: Job) -> None:
    job.residency = RESIDENT


def _stop_leaving(job: Job) -> None:
    job.residency = seat_states.Aside(job.residency.stored) if job.residency.aside else RESIDENT


def _moved_out(state: State, job: Job) -> None:
    device = state.device_of(job)
    assert device is not None
    _stop_leaving(job)
    if job.holds:
        rank(state, job)
        return  # it got a turn before it heard of the request: its memory is in use, nothing was moved
    set_aside(state, job, Memory(0, job.limit.ephemeral if device.oversubscribed and not job.paused else 0))
    stop_growing(state, job)
    freed(state, device)


def _not_moved(state: State, job: Job) -> None:
    """Leave the memory where it is.  Another job may be able to leave; this one is asked again only later."""
    _stop_leaving(job)
    job.unmovable_us = state.now + RETRY_US
    rank(state, job)
    state.touch_lane(job.lane)
    state.touch_device(job.device)


_RELEASED = Edge(release, (ResidencyState.RESIDENT,))

RESIDENCY = Table(
    {
        ResidencyState.RESIDENT: {
            OFFLOAD: Edge(_leave, (ResidencyState.LEAVING,)),
            SET_ASIDE: Edge(_set_aside, (ResidencyState.ASIDE,)),
            RELEASE: _RELEASED,
        },
        ResidencyState.LEAVING: {
            Offloaded: Edge(_moved_out, (ResidencyState.ASIDE, ResidencyState.RESIDENT)),
            OffloadFailed: Edge(_not_moved, (ResidencyState.RESIDENT,)),
            SET_ASIDE: Edge(_set_aside, (ResidencyState.LEAVING_ASIDE,)),
            RELEASE: _RELEASED,
        },
        ResidencyState.ASIDE: {
            OFFLOAD: Edge(_leave, (ResidencyState.LEAVING_ASIDE,)),
            SET_ASIDE: Edge(_set_aside, (ResidencyState.ASIDE,)),
            BRING_BACK: Edge(_bring_back, (ResidencyState.RESIDENT,)),
            RELEASE: _RELEASED,
        },
        ResidencyState.LEAVING_ASIDE: {
            Offloaded: Edge(_moved_out, (ResidencyState.ASIDE,)),
            OffloadFailed: Edge(_not_moved, (ResidencyState.ASIDE,)),
            SET_ASIDE: Edge(_set_aside, (ResidencyState.LEAVING_ASIDE,)),
            RELEASE: _RELEASED,
        },
    }
)
