"""Turns: one per lane.

The core believes what it has been told; the seats may be one hand-over ahead of it.  So a successor may already compute
when we name another (`passed` follows the seats), and a job may have given back a turn of which we have not yet heard
that it was passed to it (`Lane.ahead`).  A want that arrives from the holder belongs to its next turn: one thread of
the job can trap while another has let go but not yet said so.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from carpool.core.commands import GrantTurn, NameSuccessor
from carpool.core.metering import co_runners, warmup
from carpool.core.metering.usage import attained, level, settle_time
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import Demand
from carpool.core.state.amounts import ready
from carpool.core.state.job import Claim, Job, TurnKey
from carpool.core.state.lane import Lane, Pause, YieldAsked
from carpool.core.state.state import State
from carpool.core.turns import services, weights
from carpool.core.turns.exclusive_turns import barred, order_changed, turn_over
from carpool.core.turns.yielding import came_back, press


def want(state: State, job: Job, urgent: bool, demand: Demand | None = None) -> None:
    """The job is stopped until it has a turn; if it has paused, until it goes on."""
    job.set(touched=True, urgent=job.urgent or urgent)
    if state.holds(job):
        job.wants_again, job.next_demand = True, demand
        if urgent:
            state.touch_device(job.device)
        return
    if job.spec.service is not None and not services.accept(state, job, demand):
        _wants_none(state, job)
        return
    if not job.wanted:
        level(state, job)
        job.set(wanted=True, wanted_us=state.now, want_number=state.number())
        came_back(state, job)
    device = state.device_of(job)
    assert device is not None
    if not job.pending:
        warmup.used(state, device, job)
    if job.offloaded and job.immovable is not None:
        state.touch_device(job.device)  # what it needs may be free, also if it is not the first
    rank(state, job)


def _wants_none(state: State, job: Job) -> None:
    """It waits for no turn, and has none."""
    job.set(wanted=False, urgent=False, wants_again=False)
    rank(state, job)


def rank(state: State, job: Job) -> None:
    """Bring the job's place in its lane's queue up to date.

    Who waits for an answer to a request for memory has none, nor has who is held off by a job that has the device to
    itself; whose memory is in the host store has one, and gets the memory when it is the first.
    """
    lane = state.lane_of(job)
    if lane is None:
        return
    may = job.wanted and job.attached and not job.pending and not state.held_off(job)
    key = _key(state, job) if may else None
    if key == job.turn_key:
        return
    if job.turn_key is not None:
        del lane.queue[bisect_left(lane.queue, job.turn_key)]
    if key is not None:
        insort(lane.queue, key)
    job.turn_key = key
    state.touch_lane(lane.id)
    order_changed(state, state.devices[lane.device])


def _key(state: State, job: Job) -> TurnKey:
    if job.spec.service is not None:
        key = services.key(state, job)
    else:
        key = state.policy.turn_key(lazy_view(state), job_view(state, job))
    return (0 if job.urgent else 1, key, job.want_number, job.id)


def is_ahead(lane: Lane, job: Job) -> bool:
    """Whether a job that is not the holder can have had the turn: passed to it by the holder, unknown to us."""
    return lane.holder is not None and lane.ahead is None and job.wanted


def note_pause(state: State, lane: Lane, job: Job) -> None:
    """The job lost its turn because it was off the device."""
    job.released_us = state.now
    job.released_grace_us = state.settings.grace_us if lane.watch_us is None else lane.watch_us


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
    first = state.jobs[lane.queue[0][-1]] if lane.queue else None
    awaited = lane.claimant is not None or (first is not None and not ready(first))
    job.gave_way = awaited or lane.yield_asked is not YieldAsked.NO
    lane.yield_asked, lane.for_memory, lane.due = YieldAsked.NO, False, None
    lane.claimant, lane.watch_us = None, None
    if lane.pause is not Pause.NO:
        lane.pause = Pause.NO
        state.timers.cancel(("pause", lane.id))
    job.restoring_us = 0
    job.idle_since_us = state.now
    settle_time(job, total)
    state.timers.cancel(("yield", lane.id))
    state.timers.cancel(("forced", lane.id))
    state.touch_lane(lane.id)
    device = state.devices[lane.device]
    if device.crowd == 2:  # of more, and alone, nobody cares
        state.company_changed[lane.device] = None
    turn_over(state, device, job)
    if job.demand is not None:
        weights.let_go(state, device, job)
    if device.waiting or device.claims:
        state.touch_device(device.spec.id)
    if job.wants_again:
        job.wants_again = False
        want(state, job, job.urgent, job.next_demand)


def _begin(state: State, lane: Lane, job: Job) -> None:
    if job.urgent and state.devices[lane.device].guests:
        spare(state, lane)
    job.set(wanted=False, urgent=False, wants_again=False, promised_us=None)
    rank(state, job)
    lane.holder, lane.turn_us, lane.turn_base_us = job.id, state.now, job.attained_us
    job.cached = None  # what its view says of the turn belongs to the lane
    device = state.devices[lane.device]
    if job.stretch is not None:
        co_runners.begins(state, device, job.stretch)
    if device.crowd == 2:
        state.company_changed[lane.device] = None
    warmup.used(state, device, job)
    state.touch_lane(lane.id)
    if device.claims:
        state.touch_device(device.spec.id)  # what it was promised is in use now: it can be asked for it


def spare(state: State, lane: Lane) -> None:
    """Its holder has a signal to handle: that takes a while, which services grant it."""
    lane.spared_us = state.now + state.settings.service_patience_us
    state.touch_device(lane.device)


def refresh(state: State, lane: Lane) -> None:
    """Let the lane's seats follow from its queue: who computes, who is next, whether the holder should let go."""
    if state.restarting:
        return
    if lane.holder is None:
        chosen = _chosen(state, lane)
        if chosen is None:
            return
        _begin(state, lane, chosen)
        state.emit(GrantTurn(lane.id, chosen.id))
    assert lane.holder is not None
    holder = state.jobs[lane.holder]
    best = state.jobs[lane.queue[0][-1]] if lane.queue else None
    successor = best.id if best is not None and ready(best) and not barred(state, best) else None
    if successor != lane.successor:
        lane.successor = successor
        state.emit(NameSuccessor(lane.id, holder.id, successor))
    press(state, lane, holder)


def _chosen(state: State, lane: Lane) -> Job | None:
    """Who gets a free turn: the first in the queue.

    While its memory is being made room for, nobody; while that is not possible, the first whose memory is there.
    Nobody but the one that is to have the whole device.
    """
    guest = state.devices[lane.device].guest
    if guest in lane.jobs:
        return state.jobs[guest]
    if not lane.queue or lane.serves:
        return None
    best = state.jobs[lane.queue[0][-1]]
    if ready(best):
        return None if barred(state, best) else best
    unheard = best.claim is Claim.NONE and not best.offload_asked
    if unheard:
        state.touch_device(lane.device)  # comes back to this lane
    if unheard or best.claim in (Claim.MOVING, Claim.TURNS):
        return None
    able = (job for key in lane.queue if ready(job := state.jobs[key[-1]]))
    return next((job for job in able if not barred(state, job)), None)


def forget(state: State, job: Job) -> None:
    """The job computes no more: its turn is free, and it waits for none."""
    lane = state.lane_of(job)
    _wants_none(state, job)
    if lane is None:
        return
    if lane.holder == job.id:
        ended(state, lane)
    elif job.demand is not None:
        weights.let_go(state, state.devices[lane.device], job)
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
