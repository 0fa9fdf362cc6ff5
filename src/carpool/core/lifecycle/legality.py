"""The legality of events: the life of a job as a table of its phases, and what the state allows beyond it.

Three answers are possible.  A row in `TABLE` lists the phases that may follow.  A pair in `LATE` is an event that lost
a race (the job ended, or was cancelled, while the event was on its way): it is ignored on purpose.  Everything else is
illegal and raises `IllegalTransition`.

Nothing here changes the state.  The phase of the job answers first; then, for events of a seat, whether a process is
there; and last the table of what the event is about: `TURNS`, `PREEMPTION` or `RESIDENCY`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carpool.core import events
from carpool.core.events import IllegalTransition
from carpool.core.lifecycle import adoption
from carpool.core.lifecycle.submissions import check_spec
from carpool.core.memory.preemption import PREEMPTION
from carpool.core.memory.residency import RESIDENCY
from carpool.core.model import JobPhase, MemoryClass
from carpool.core.state.job import Job
from carpool.core.state.seat_states import Cause, edges
from carpool.core.state.state import State, story
from carpool.core.turns.turns import TURNS, may_be_ahead

QUEUED, STARTING, RUNNING = JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING
STOPPING, ENDED = JobPhase.STOPPING, JobPhase.ENDED

#: Causes that the core itself decides, beside events.
ADMITTED, REFUSED, TIME_OVER = "admitted", "refused", "time over"

SEATED = (
    events.Attached,
    events.Detached,
    events.TurnWanted,
    events.ServiceBusy,
    events.EngineServed,
    events.TurnReleased,
    events.TurnPassed,
    events.TurnPaused,
    events.MemoryRequested,
    events.RequestWithdrawn,
    events.MemoryReturned,
    events.Offloaded,
    events.OffloadFailed,
    events.Sampled,
    events.TraitsSeen,
)

TABLE: dict[JobPhase, dict[Cause, tuple[JobPhase, ...]]] = {
    QUEUED: {
        ADMITTED: (STARTING,),
        REFUSED: (ENDED,),
        events.CancelRequested: (ENDED,),
        events.HoldChanged: (QUEUED,),
        events.PauseChanged: (QUEUED,),
        events.JobChanged: (QUEUED, ENDED),
        events.ServiceBusy: (QUEUED,),
        events.EngineServed: (QUEUED,),
        events.Adopted: (STARTING, RUNNING, STOPPING),
    },
    STARTING: {
        events.ProcessStarted: (RUNNING,),
        events.StartFailed: (ENDED,),
        events.CancelRequested: (STOPPING,),
        events.Preempted: (STARTING,),
        # The shim's and the job's sockets are not ordered: a job may attach, or end, before it is known to run.
        events.ProcessExited: (ENDED, QUEUED),  # queued: for another attempt
        events.JobChanged: (STARTING,),
        events.PauseChanged: (STARTING,),
        events.RequeueRequested: (STOPPING,),
        **dict.fromkeys(SEATED, (STARTING,)),
    },
    RUNNING: {
        TIME_OVER: (STOPPING,),
        events.CancelRequested: (STOPPING,),
        events.JobChanged: (RUNNING,),
        events.PauseChanged: (RUNNING,),
        events.RequeueRequested: (STOPPING,),
        events.ProcessExited: (ENDED, QUEUED),
        events.Preempted: (RUNNING,),
        **dict.fromkeys(SEATED, (RUNNING,)),
    },
    STOPPING: {
        events.ProcessStarted: (STOPPING,),  # cancelled while it started: signalled again
        events.StartFailed: (ENDED,),
        events.CancelRequested: (STOPPING,),
        events.ProcessExited: (ENDED, QUEUED),  # queued: it is requeued
        events.PauseChanged: (STOPPING,),  # applies to the next attempt
        events.Preempted: (STOPPING,),
        **dict.fromkeys(SEATED, (STOPPING,)),
    },
    ENDED: {},
}

#: Events that may come too late, and are ignored.
LATE: frozenset[tuple[JobPhase, type]] = frozenset(
    {(ENDED, kind) for kind in SEATED}
    | {
        (ENDED, kind)
        for kind in (events.CancelRequested, events.ProcessStarted, events.ProcessExited, events.Preempted)
    }
    | {(ENDED, events.StartFailed), (RUNNING, events.ProcessStarted)}
    | {(phase, events.HoldChanged) for phase in (STARTING, RUNNING, STOPPING, ENDED)}
    | {(STOPPING, events.JobChanged), (ENDED, events.JobChanged), (ENDED, events.PauseChanged)}
    | {(phase, events.RequeueRequested) for phase in (QUEUED, STOPPING, ENDED)}
)
#: Events of a failed attempt that may still come while the job waits for the next one.
LATE_OF_ATTEMPT = frozenset(kind for phase, kind in LATE if phase is ENDED) - set(TABLE[QUEUED])
#: Says whether an event of a job is legal: the job, or None where it came too late.  Raises IllegalTransition.
Judge = Callable[[State, Job, Any], Job | None]


def mermaid() -> str:
    """Draw the table as a Mermaid state diagram, one line per edge; events that keep the phase share a line."""
    lines = ["stateDiagram-v2", "    [*] --> queued: Submitted", "    [*] --> ended: Submitted, refused"]
    return "\n".join([*lines, *edges(TABLE), "    ended --> [*]"]) + "\n"


def subject(state: State, event: Any) -> Job | None:
    """Return the job that an event is about; None if the event came too late and means nothing any more.

    Raises IllegalTransition, with the story of the job.
    """
    job = state.jobs.get(event.job)
    if job is None:
        if event.job not in state.pruned_ids or (JobPhase.ENDED, type(event)) not in LATE:
            raise IllegalTransition(f"{event}: there is no job {event.job}")
        return None  # it ended long ago
    if _is_late(job, event):
        return None
    if type(event) not in TABLE[job.phase]:
        raise illegal(job, event, f"not possible while the job is {job.phase}")
    judge = _JUDGES.get(type(event))
    return job if judge is None else judge(state, job, event)


def illegal(job: Job, event: Any, why: str) -> IllegalTransition:
    """Make the error for an event that cannot happen, with what the job did before."""
    return IllegalTransition(f"{event}: {why}.  What job {job.id} did before:{story(job.history)}")


def _is_late(job: Job, event: Any) -> bool:
    """Whether the event lost a race against the end of the job, or of the attempt that it is about."""
    again = bool(job.past) and job.phase is JobPhase.QUEUED
    return (job.phase, type(event)) in LATE or (again and type(event) in LATE_OF_ATTEMPT)


def _checked(job: Job, event: Any, legal: bool, why: str) -> Job | None:
    """Return the job if the event is legal; None if an adopted job answers the earlier daemon.

    Raises IllegalTransition with ``why``.
    """
    if not legal and not job.adopted:
        raise illegal(job, event, why)
    return job if legal else None


# Judges


def _adopted(state: State, job: Job, event: events.Adopted) -> Job:
    adoption.refuse_contradiction(state, event)
    return job


def _pause_changed(state: State, job: Job, event: events.PauseChanged) -> Job:
    if job.serves and not job.is_engine and event.by is not None:
        raise ValueError(f"{event}: a worker of models is not paused")
    return job


def _changed(state: State, job: Job, event: events.JobChanged) -> Job:
    check_spec(event.spec)
    return job


def _attached(state: State, job: Job, event: events.Attached) -> Job:
    if job.attached or job.lane is None:
        raise illegal(job, event, "another process is attached" if job.attached else "the job has no lane")
    return job


def _preempted(state: State, job: Job, event: events.Preempted) -> Job:
    if not job.leaving:
        raise illegal(job, event, "the job was not asked for its devices")
    return job


def _seated(state: State, job: Job, event: Any) -> Job | None:
    """Judge an event of a seat, which needs an attached process."""
    if job.attached:
        judge = _SEAT_JUDGES.get(type(event))
        return job if judge is None else judge(state, job, event)
    if _of_other_processes(job, event):
        return job
    if not (job.was_attached or job.past):
        raise illegal(job, event, "no process of the job has attached")
    return None  # the process is gone, and its last event arrives only now


def _of_other_processes(job: Job, event: Any) -> bool:
    """Whether processes of the job without a seat may cause the event: such processes may use the device, too."""
    if isinstance(event, events.TraitsSeen):
        return event.immovable is None
    if not isinstance(event, (events.MemoryRequested, events.MemoryReturned, events.RequestWithdrawn)):
        return False
    return job.found_exclusive is not None and event.memory_class is MemoryClass.PERSISTENT


def _turn_wanted(state: State, job: Job, event: events.TurnWanted) -> Job:
    if event.demand is not None and not job.serves:
        raise illegal(job, event, "the job is not a service")
    return job


def _of_engine(state: State, job: Job, event: events.ServiceBusy | events.EngineServed) -> Job:
    if not job.is_engine:
        raise illegal(job, event, "the job is not an engine")
    return job


def _turn_released(state: State, job: Job, event: events.TurnReleased) -> Job | None:
    lane = state.lane_of(job)
    # A job that got its turn from a peer has no successor until the core names one: it can only release the turn.
    had = TURNS.legal(job.turn.state, type(event)) and lane is not None and (job.holds or may_be_ahead(lane, job))
    return _checked(job, event, had, "the job has no turn")


def _turn_passed(state: State, job: Job, event: events.TurnPassed) -> Job | None:
    if event.to not in state.jobs and event.to not in state.pruned_ids:
        raise illegal(job, event, f"there is no job {event.to}")
    return _checked(job, event, TURNS.legal(job.turn.state, type(event)), "the job has no turn")


def _turn_paused(state: State, job: Job, event: events.TurnPaused) -> Job | None:
    lane = state.lane_of(job)
    had = job.holds and lane is not None and PREEMPTION.legal(lane.preempt.state, type(event))
    return _checked(job, event, had, "the job has no turn")


def _moved(state: State, job: Job, event: events.Offloaded | events.OffloadFailed) -> Job | None:
    return _checked(
        job, event, RESIDENCY.legal(job.residency.state, type(event)), "the job was not asked for its memory"
    )


_JUDGES: dict[type, Judge] = {
    **dict.fromkeys(SEATED, _seated),
    events.Adopted: _adopted,
    events.JobChanged: _changed,
    events.PauseChanged: _pause_changed,
    events.Attached: _attached,
    events.Preempted: _preempted,
    **dict.fromkeys((events.ServiceBusy, events.EngineServed), _of_engine),
}
_SEAT_JUDGES: dict[type, Judge] = {
    events.TurnWanted: _turn_wanted,
    events.TurnReleased: _turn_released,
    events.TurnPassed: _turn_passed,
    events.TurnPaused: _turn_paused,
    events.Offloaded: _moved,
    events.OffloadFailed: _moved,
}
