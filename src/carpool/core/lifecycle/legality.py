"""Which events may come when: legal, late (and ignored on purpose), or illegal.  Nothing here changes the state."""

from __future__ import annotations

from typing import Any

from carpool.core import events
from carpool.core.errors import IllegalTransition
from carpool.core.lifecycle import adoption
from carpool.core.lifecycle.transitions import LATE, LATE_OF_ATTEMPT, SEATED, TABLE
from carpool.core.model import JobPhase, MemoryClass
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.state.story import story
from carpool.core.turns import turns

_NEED_SEAT = frozenset(SEATED) - {events.Attached}
#: Also of a job's other processes, which may be there when the one that was attached has gone.
_OF_OTHERS = (events.MemoryRequested, events.MemoryReturned, events.RequestWithdrawn)


def subject(state: State, event: Any) -> Job | None:
    """The job an event speaks of; None if the event came too late and means nothing any more."""
    job = state.jobs.get(event.job)
    if job is None and event.job in state.forgotten and (JobPhase.ENDED, type(event)) in LATE:
        return None
    if job is None:
        raise IllegalTransition(f"{event}: there is no job {event.job}")
    if (job.phase, type(event)) in LATE:
        return None
    if job.past and job.phase is JobPhase.QUEUED and type(event) in LATE_OF_ATTEMPT:
        return None
    if type(event) not in TABLE[job.phase]:
        raise illegal(job, event, f"not possible while the job is {job.phase}")
    return _seated(state, job, event)


def _seated(state: State, job: Job, event: Any) -> Job | None:
    """Events of a seat need somebody in it."""
    kind = type(event)
    if kind is events.Adopted:
        adoption.refuse_contradiction(state, event)
    elif kind is events.Attached:
        if job.attached or job.lane is None:
            raise illegal(job, event, "another process is attached" if job.attached else "it has no lane")
    elif kind in _NEED_SEAT and not job.attached:
        if kind is events.TraitsSeen and event.immovable is None:
            return job  # processes that nobody speaks for may use the device, too
        if kind in _OF_OTHERS and job.alone is not None and event.memory_class is MemoryClass.PERSISTENT:
            return job
        if job.was_attached or job.past:
            return None  # the process is gone; what it said last reaches us only now
        raise illegal(job, event, "no process of the job has attached")
    elif kind is events.TurnPassed and event.to not in state.jobs and event.to not in state.forgotten:
        raise illegal(job, event, f"there is no job {event.to}")
    elif kind in (events.TurnReleased, events.TurnPassed, events.TurnPaused):
        return _had_turn(state, job, event)
    elif kind is events.TurnWanted and event.demand is not None and job.spec.service is None:
        raise illegal(job, event, "it is no service")
    elif kind is events.Preempted and not job.leaving:
        raise illegal(job, event, "nobody asked for its devices")
    elif kind in (events.Offloaded, events.OffloadFailed) and not (job.offload_asked or job.adopted):
        raise illegal(job, event, "nobody asked for it")
    return job


def _had_turn(state: State, job: Job, event: Any) -> Job | None:
    lane = state.lane_of(job)
    # A job that got its turn from a peer has no successor until we name one: it cannot have passed it on.
    early = isinstance(event, events.TurnReleased)
    if lane is not None and (lane.holder == job.id or (early and turns.is_ahead(lane, job))):
        return job
    if job.adopted:
        return None  # a packet from before the restart; its seat has told us since
    raise illegal(job, event, "it has no turn")


def illegal(job: Job, event: Any, why: str) -> IllegalTransition:
    return IllegalTransition(f"{event}: {why}.  What job {job.id} did before:{story(job.history)}")
