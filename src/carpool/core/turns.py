"""Turns: one per lane.

The core believes what it has been told; the seats may be one hand-over ahead of it.  So a successor may already compute
when we name another (`passed` follows the seats), and a job may have given back a turn of which we have not yet heard
that it was passed to it (`Lane.ahead`).  A want that arrives from the holder belongs to its next turn: one thread of
the job can trap while another has let go but not yet said so.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from carpool.core.commands import GrantTurn, NameSuccessor
from carpool.core.figures import attained, level, settle_time
from carpool.core.snapshot import job_view, lazy_view
from carpool.core.state import Job, Lane, State, TurnKey, YieldAsked
from carpool.core.yielding import press, withdraw


def want(state: State, job: Job, urgent: bool) -> None:
    """The job is stopped until it has a turn."""
    job.set(touched=True, urgent=job.urgent or urgent)
    if state.holds(job):
        job.wants_again = True
        return
    if not job.wanted:
        level(state, job)
        job.set(wanted=True, wanted_us=state.now, want_number=state.number())
    device = state.device_of(job)
    assert device is not None
    if job.id in device.warm and not job.pending:
        device.warm.discard(job.id)
        state.admit_all = True
    if job.offloaded:
        device.returning.add(job.id)
        state.touch_device(device.spec.id)
    rank(state, job)


def rank(state: State, job: Job) -> None:
    """Bring the job's place in its lane's queue up to date.  Only who could compute at once has one."""
    lane = state.lane_of(job)
    if lane is None:
        return
    may = job.wanted and job.attached and not job.pending and not job.offloaded and not job.offload_asked
    key = _key(state, job) if may else None
    if key == job.turn_key:
        return
    if job.turn_key is not None:
        del lane.queue[bisect_left(lane.queue, job.turn_key)]
    if key is not None:
        insort(lane.queue, key)
    job.turn_key = key
    state.touch_lane(lane.id)


def _key(state: State, job: Job) -> TurnKey:
    key = state.policy.turn_key(lazy_view(state), job_view(state, job))
    return (0 if job.urgent else 1, key, job.want_number, job.id)


def is_ahead(lane: Lane, job: Job) -> bool:
    """Whether a job that is not the holder can have had the turn: passed to it by the holder, unknown to us."""
    return lane.holder is not None and lane.ahead is None and job.wanted


def released(state: State, lane: Lane, job: Job) -> None:
    """The job gave its turn back to us."""
    if lane.holder == job.id:
        ended(state, lane)
        return
    # The holder has passed it the turn, and we hear of that later: `passed` frees the lane then.
    lane.ahead = job.id
    job.wanted, job.urgent = False, False
    rank(state, job)


def passed(state: State, lane: Lane, to: Job | None) -> None:
    """The holder handed its turn to ``to``, which computes already, or has died since."""
    ahead = lane.ahead
    ended(state, lane)
    if to is not None and to.lane == lane.id and to.attached and to.id != ahead:
        _begin(state, lane, to)


def ended(state: State, lane: Lane) -> None:
    """The holder's turn is over."""
    assert lane.holder is not None
    job = state.jobs[lane.holder]
    if lane.successor is not None and job.attached:
        # We may have named one after it had looked; the name must not be there when its next turn ends.
        state.emit(NameSuccessor(lane.id, job.id, None))
    total = attained(state, job)
    lane.virtual_us = max(lane.virtual_us, job.virtual_us)
    lane.holder, lane.successor, lane.ahead = None, None, None
    lane.yield_asked, lane.for_memory, lane.due = YieldAsked.NO, False, None
    job.idle_since_us = state.now
    settle_time(job, total)
    state.timers.cancel(("yield", lane.id))
    state.timers.cancel(("forced", lane.id))
    state.touch_lane(lane.id)
    device = state.devices[lane.device]
    if device.waiting or device.returning:
        state.touch_device(device.spec.id)
    if job.wants_again:
        job.wants_again = False
        want(state, job, job.urgent)


def _begin(state: State, lane: Lane, job: Job) -> None:
    job.set(wanted=False, urgent=False, wants_again=False)
    rank(state, job)
    lane.holder, lane.turn_us, lane.turn_base_us = job.id, state.now, job.attained_us
    job.cached = None  # what its view says of the turn belongs to the lane
    device = state.devices[lane.device]
    device.warm.discard(job.id)
    state.touch_lane(lane.id)


def refresh(state: State, lane: Lane) -> None:
    """Let the lane's seats follow from its queue: who computes, who is next, whether the holder should let go."""
    if state.restarting:
        return
    if lane.holder is None and lane.queue:
        job = state.jobs[lane.queue[0][-1]]
        _begin(state, lane, job)
        state.emit(GrantTurn(lane.id, job.id))
    if lane.holder is None:
        return
    holder = state.jobs[lane.holder]
    best = lane.queue[0][-1] if lane.queue else None
    if best != lane.successor:
        lane.successor = best
        state.emit(NameSuccessor(lane.id, holder.id, best))
    if best is None:
        withdraw(state, lane, holder)
    else:
        press(state, lane, holder, state.jobs[best])


def forget(state: State, job: Job) -> None:
    """The job computes no more: its turn is free, and it waits for none."""
    lane = state.lane_of(job)
    job.set(wanted=False, urgent=False, wants_again=False)
    rank(state, job)
    if lane is None:
        return
    if lane.holder == job.id:
        ended(state, lane)
    state.touch_lane(lane.id)


def reorder(state: State) -> None:
    """Another policy, or other settings: every key is made anew."""
    for lane in state.lanes.values():
        jobs = [state.jobs[key[-1]] for key in lane.queue]
        lane.queue, lane.due = [], None
        for job in jobs:
            job.turn_key = None
            rank(state, job)
        state.touch_lane(lane.id)
