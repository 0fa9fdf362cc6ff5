"""The life of a job as a table: which event may come in which phase, and where it may lead.

Three answers are possible.  A row in `TABLE` lists the phases that may follow.  A pair in `LATE` is an event that lost
a race (the job ended, or was cancelled, while the event was on its way): it is ignored on purpose.  Everything
else is illegal and raises `IllegalTransition`.
"""

from __future__ import annotations

from carpool.core import events
from carpool.core.model import JobPhase
from carpool.core.state.tables import Cause, edges

QUEUED, STARTING, RUNNING = JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING
STOPPING, ENDED = JobPhase.STOPPING, JobPhase.ENDED

#: Causes that the core itself decides, beside events.
ADMITTED, REFUSED, TIME_OVER = "admitted", "refused", "time over"

SEATED = (
    events.Attached,
    events.Detached,
    events.TurnWanted,
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


def mermaid() -> str:
    """Draw the table as a Mermaid state diagram, one line per edge; events that keep the phase share a line."""
    lines = ["stateDiagram-v2", "    [*] --> queued: Submitted", "    [*] --> ended: Submitted, refused"]
    return "\n".join([*lines, *edges(TABLE), "    ended --> [*]"]) + "\n"
