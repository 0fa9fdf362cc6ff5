"""Serving those who wait for memory, and moving jobs out when nothing else helps.

Order of service on a device: requests of jobs whose memory is there (the grower first, then by age), then jobs that
were moved out, the one placed first first, then new jobs.  A deadlock, every job that holds memory waiting for more, is
resolved by moving out the one that was placed last.  A job that does nothing counts as waiting after a while.
"""

from __future__ import annotations

from carpool.core.commands import GrantMemory, Offload, RequestYield
from carpool.core.memory import (
    cost,
    drop_estimate,
    freed,
    grant,
    join,
    of_class,
    reserve,
    stop_growing,
    trim_lane,
    with_class,
)
from carpool.core.model import JobId, Memory, Micros
from carpool.core.requests import fitting, may_grow
from carpool.core.state import NOTHING, Device, Job, State, YieldAsked
from carpool.core.turns import rank


def serve(state: State, device: Device) -> None:
    """Answer what can be answered; then see whether anything still moves."""
    before, device.short = device.short, None
    if device.waiting or device.returning:
        _serve_requests(state, device)
        if device.short is None:
            _serve_returning(state, device)
    if device.short is not None and before is None:
        device.short_since_us = state.now
    if device.short is None and before is not None:
        state.admit_all = True
    unstick(state, device)


def _order(state: State, device: Device) -> list[tuple[int, JobId, object]]:
    return sorted(device.waiting, key=lambda entry: (entry[1] != device.grower, entry[0]))


def _serve_requests(state: State, device: Device) -> None:
    for _, number, kind in _order(state, device):
        job = state.jobs[number]
        state.touch_lane(job.lane)  # if it waits on and holds a turn, others may have that
        if job.offloaded or job.offload_asked:
            continue
        request = job.pending[kind]  # type: ignore[index]
        inside = request.total <= of_class(job.reserved, request.memory_class)
        if not inside and not may_grow(device, job):
            continue
        if not job.known and device.grower is None:
            device.grower = job.id
        limit = fitting(state, job, request)
        if limit is None and drop_estimate(state, job):
            limit = fitting(state, job, request)  # the estimate was wrong; what it kept may be what is missing
        if limit is not None:
            grant(state, job, limit, (request.memory_class,))
        elif device.short is None:
            device.short = number


def _serve_returning(state: State, device: Device) -> None:
    for number in sorted(device.returning, key=lambda number: state.jobs[number].placed):
        job = state.jobs[number]
        if job.pending and not may_grow(device, job):
            continue
        limit = needed(job)
        if cost(state, job, limit) > device.free:
            device.short = number
            return
        if job.pending and not job.known:
            device.grower = number
        device.returning.discard(number)
        job.offloaded, job.stored = False, NOTHING
        grant(state, job, limit, tuple(job.pending))


def needed(job: Job) -> Memory:
    """What an offloaded job must have to go on: its old limits and what it asked for since."""
    limit = job.stored
    for kind, request in job.pending.items():
        limit = join(limit, with_class(limit, kind, request.total))
    return limit


def offloaded(state: State, job: Job) -> None:
    """All of the job's memory is in the host store."""
    device = state.device_of(job)
    assert device is not None
    job.offload_asked = False
    if job.offloaded:
        return  # found so at a restart; its answer to the earlier daemon comes after
    if state.holds(job):
        rank(state, job)
        return  # it got a turn before it heard of the request: its memory is in use, nothing was moved
    job.offloaded, job.stored, job.limit = True, job.limit, NOTHING
    state.emit(GrantMemory(job.id, NOTHING))
    reserve(state, job, NOTHING)
    trim_lane(state, job)
    stop_growing(state, job)
    if job.wanted or job.pending:
        device.returning.add(job.id)
    rank(state, job)
    freed(state, device)


def unstick(state: State, device: Device) -> None:
    """If somebody waits for memory and nobody who holds any moves, move one out.  Sets the timer to look again."""
    key = ("stuck", device.spec.id)
    state.timers.cancel(key)
    if not device.waiting and not device.returning:
        return
    holders = [state.jobs[number] for number in sorted(device.jobs) if state.jobs[number].reserved.total > 0]
    if any(job.offload_asked for job in holders):
        return
    due = max((_still_since(state, job, device) for job in holders), default=state.now)
    if due > state.now:
        state.timers.set(key, due)
    elif any(_computes(state, job) for job in holders):
        _probe(state, device, holders)
        state.timers.set(key, state.now + state.settings.warm_timeout_us)
    elif device.grower is not None and _idle(state, state.jobs[device.grower]):
        # Nothing is measured while the grower sleeps: somebody else may grow.
        stop_growing(state, state.jobs[device.grower])
    elif device.short is not None:
        _move_out(state, holders, device.short)


def _computes(state: State, job: Job) -> bool:
    return state.holds(job) and not job.pending


def _idle(state: State, job: Job) -> bool:
    return job.attached and not job.pending and not job.wanted and not state.holds(job)


def _still_since(state: State, job: Job, device: Device) -> Micros:
    """When the job counts, or is to be looked at again, as one that does not move."""
    patience = state.settings.warm_timeout_us
    if job.pending:
        return 0
    if _idle(state, job):
        return job.idle_since_us + patience
    lane = state.lane_of(job)
    if lane is not None and lane.holder == job.id and lane.yield_asked is YieldAsked.NO:
        return max(lane.turn_us, device.short_since_us) + patience
    return state.now + patience


def _probe(state: State, device: Device, holders: list[Job]) -> None:
    """A job that is alone on its lane keeps its turn even if it sleeps.

    Asked to yield it lets go, and shows that it is idle, or comes back at once.
    """
    for job in holders:
        lane = state.lane_of(job)
        if lane is not None and _computes(state, job) and lane.yield_asked is YieldAsked.NO:
            lane.yield_asked, lane.for_memory = YieldAsked.BOUNDARY, True
            state.emit(RequestYield(job.id))


def _move_out(state: State, holders: list[Job], short: JobId) -> None:
    """Sleepers first, the longest sleep first; then the one that was placed last."""
    if not holders or [job.id for job in holders] == [short]:
        return
    victim = min(holders, key=lambda job: (1, -job.placed) if job.pending else (0, job.idle_since_us))
    lane = state.lane_of(victim)
    if lane is not None and lane.holder == victim.id:
        # It waits for memory in the middle of its turn.  When it has let go we come back here.
        if lane.yield_asked is not YieldAsked.FORCED:
            lane.yield_asked, lane.for_memory = YieldAsked.FORCED, True
            state.emit(RequestYield(victim.id, forced=True))
        return
    victim.offload_asked = True
    rank(state, victim)
    state.emit(Offload(victim.id))
