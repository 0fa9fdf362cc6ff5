"""Idle engines that end because the host store has no room: for memory that has to leave a device for it.

An engine that a front serves starts again with its next request; so it ends where otherwise others would wait, the
least recently used first.  Its memory lies in the store, or would go there.  Pinned engines and engines without a front
stay.  The core only asks (`StopEngine`): the front ends the engine unless it has requests by then.  An engine that goes
on has others wait for `PATIENCE_US`, and counts as one without a front from then on, until it has had requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from carpool.core.commands import StopEngine
from carpool.core.model import JobPhase, Micros
from carpool.core.state.job import Job
from carpool.core.state.state import State

#: The front hears of it within a second or so, and the process may need its time to end.
PATIENCE_US = 10_000_000


def end(state: State, leaving: Collection[Job], missing: int) -> None:
    """Have engines ended so that the host store gets room for ``missing`` bytes; none if all of them would not do.

    ``leaving``: jobs whose memory is to go to the store, among them perhaps such engines.
    """
    missing -= sum(_gain(job, leaving) for job in _placed(state) if _ends(state, job))
    chosen: list[Job] = []
    for engine in sorted(filter(may_end, _placed(state)), key=lambda job: (job.idle_since_us, job.id)):
        if missing > 0 and (gain := _gain(engine, leaving)):
            chosen.append(engine)
            missing -= gain
    for engine in tuple(reversed(chosen)):  # more recently used ones
        if missing + (gain := _gain(engine, leaving)) <= 0:
            chosen.remove(engine)
            missing += gain
    for engine in chosen if missing <= 0 else ():
        engine.stop_asked_us = state.now
        state.emit(StopEngine(engine.id))


def may_end(job: Job) -> bool:
    """Whether the job is an engine that can end now: its front starts it again with the next request."""
    able = job.served and not job.is_pinned and job.stop_asked_us is None and job.phase is JobPhase.RUNNING
    return able and job.rests and not (job.wanted or job.holds or job.pending)


def awaited(state: State) -> list[Job]:
    """Return the engines that have been asked to end, and are expected to."""
    return [job for job in _placed(state) if _ends(state, job) and job.is_engine]


def due_us(state: State) -> Micros | None:
    """Return when engines that have been asked to end are not waited for any more; None: none is."""
    asked = [job.stop_asked_us for job in awaited(state) if job.stop_asked_us is not None]
    return max((asked_us + PATIENCE_US for asked_us in asked if state.now < asked_us + PATIENCE_US), default=None)


def _ends(state: State, job: Job) -> bool:
    asked_us = job.stop_asked_us
    return job.phase is JobPhase.STOPPING or (asked_us is not None and state.now < asked_us + PATIENCE_US)


def _gain(job: Job, leaving: Collection[Job]) -> int:
    """Bytes of the store that the job's end frees, or makes needless."""
    if job in leaving:
        return max(job.kept, job.reserved.persistent)
    return job.kept if job.offloaded or job.offload_asked or job.usage.stored else 0


def _placed(state: State) -> Iterator[Job]:
    return (state.jobs[number] for device in state.devices.values() for number in sorted(device.jobs))
