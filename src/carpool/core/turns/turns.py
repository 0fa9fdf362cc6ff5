"""Turns: one per lane.

Which job gets a free turn; the numbers stand in `_chosen`:

1. The job for whose turn the whole device has been made free; the device's other lanes wait (`order`).
2. In a lane of services no other job, because a service computes only so.
3. No job, if none waits.
4. The first in the queue, if what it needs is on the device; no job while that one is kept out by a job that is to have
   the whole device.
5. No job, if the first one's lack of memory has not been evaluated yet: the device is served first, then this lane
   again.
6. No job, while room is made for the first one: it should find the turn free.
7. The first one in the queue that has what it needs and is not kept out.  So the device does not idle while the first
   one's memory cannot be had.

The states of a job's turn and what leads from one to another are the table `TURNS` at the end.

The core believes what it has been told; the seats may be one hand-over ahead of it.  So a successor may already compute
when the core names another (`TurnPassed` follows the seats), and a job may have given back a turn before the core has
heard that the turn was passed to it (`Lane.ahead`).  A want that arrives from the holder belongs to its next turn: one
thread of the job can trap while another has released the turn but not yet said so.
"""

from __future__ import annotations

from carpool.core.commands import DenyTurn, GrantTurn, NameSuccessor
from carpool.core.events import TurnPassed, TurnReleased, TurnWanted
from carpool.core.metering import co_runners, warmup
from carpool.core.metering.usage import attained, level, reconcile_time
from carpool.core.model import Demand, Reason
from carpool.core.state.amounts import ready
from carpool.core.state.device import Lane, YieldAsked
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import (
    HOLDING,
    IDLE,
    UNDISTURBED,
    Edge,
    Holding,
    NextTurn,
    PreemptState,
    Table,
    TurnState,
    Waiting,
)
from carpool.core.state.state import State
from carpool.core.turns import engines, order, weights
from carpool.core.turns.order import leave_queue, may_start, rank, turn_over
from carpool.core.turns.yielding import adjust_grace, request_yield

#: Causes that the core decides, beside events: the job gets the turn; the job computes no more.
GRANTED, FORGOTTEN = "granted", "forgotten"


def want(state: State, job: Job, urgent: bool, demand: Demand | None = None) -> None:
    """Stop the job until it has a turn; if it has paused, until it goes on."""
    TURNS.act(job.turn.state, TurnWanted)(state, job, urgent, demand)


def wants_itself(state: State, job: Job, urgent: bool, demand: Demand | None) -> None:
    """Record that the job has stopped until it has a turn."""
    job.wished = False
    want(state, job, urgent, demand)


def busy_changed(state: State, job: Job, busy: bool) -> None:
    """Want a turn on behalf of an engine that has requests; let one without requests go."""
    if busy == job.busy:
        return
    job.busy, job.let_go = busy, job.holds and not busy
    job.stop_asked_us = None if busy else job.stop_asked_us
    state.touch_lane(job.lane)
    if busy:
        _wish(state, job)
    elif job.wished and job.wanted:
        forget(state, job)


def served_changed(job: Job, served: bool) -> None:
    """Record whether a front serves an engine, which may ask it to end then."""
    job.served, job.stop_asked_us = served, None


def _wish(state: State, job: Job) -> None:
    device = state.device_of(job)
    if device is None or not job.attached:
        return  # it asks itself when it has come
    engines.end_recess(state, device, job)
    if job.turn.state is TurnState.IDLE:
        job.wished = True
        want(state, job, urgent=False)


def released(state: State, job: Job) -> None:
    """Record that the job gave its turn back to the core."""
    TURNS.act(job.turn.state, TurnReleased)(state, job)
    if job.busy:
        _wish(state, job)


def passed(state: State, job: Job, to: Job | None) -> None:
    """Record that the holder handed its turn to ``to``, which computes already, or (None) has ended since."""
    TURNS.act(job.turn.state, TurnPassed)(state, job, to)


def forget(state: State, job: Job) -> None:
    """End the job's turn, and its wait for one: the job computes no more."""
    TURNS.act(job.turn.state, FORGOTTEN)(state, job)
    state.touch_lane(job.lane)


def deny(state: State, job: Job, reason: Reason) -> None:
    """Tell a service that waits for its turn that it cannot have what it wants the turn for."""
    state.emit(DenyTurn(job.id, reason))
    forget(state, job)


def may_be_ahead(lane: Lane, job: Job) -> bool:
    """Whether a job that is not the holder can have had the turn, passed to it by the holder, unknown to the core."""
    return lane.holder is not None and lane.ahead is None and job.wanted


def note_pause(state: State, lane: Lane, job: Job) -> None:
    """Record that the job lost its turn because it was off the device."""
    job.released_us = state.now
    job.released_grace_us = state.settings.grace_us if lane.watch_us is None else lane.watch_us


# What events and decisions do to the turn of a job


def _begin_to_wait(state: State, job: Job, urgent: bool, demand: Demand | None) -> None:
    """Let a job that wanted nothing wait for a turn, or tell it that it can never have the turn that it wants."""
    warmup.seen_using(state, job)
    if not order.accept_demand(state, job, demand):
        return
    level(state, job)
    job.set(turn=Waiting(state.number(), urgent), wanted_us=state.now)
    adjust_grace(state, job)
    _queue_up(state, job)


def _wait_on(state: State, job: Job, urgent: bool, demand: Demand | None) -> None:
    """Update the want of a job that waits: it may want another turn, more urgently, or an impossible one now."""
    warmup.seen_using(state, job)
    if not order.accept_demand(state, job, demand):
        _stop_waiting(state, job)
        return
    turn = job.turn
    assert isinstance(turn, Waiting)
    if urgent and not turn.urgent:
        job.turn = Waiting(turn.number, True, turn.key)
    _queue_up(state, job)


def _queue_up(state: State, job: Job) -> None:
    """Queue the job for its turn; what follows from that is decided when the event has been noted."""
    device = state.device_of(job)
    assert device is not None
    if not job.pending:
        warmup.used(state, device, job)
    if job.offloaded and job.pinned is not None:
        state.touch_device(job.device)  # what it needs may be free, also if it is not the first
    rank(state, job)


def _want_another(state: State, job: Job, urgent: bool, demand: Demand | None) -> None:
    """Record that the holder will want another turn; if it has paused, that it wants to go on."""
    warmup.seen_using(state, job)
    job.turn = Holding(NextTurn(job.turn.urgent or urgent, demand))
    if urgent:
        state.touch_device(job.device)


def _stop_waiting(state: State, job: Job) -> None:
    """End the job's wait for a turn."""
    lane = state.lane_of(job)
    if lane is not None:
        leave_queue(state, lane, job)
    job.turn = IDLE


def _forget_waiting(state: State, job: Job) -> None:
    _stop_waiting(state, job)
    device = state.device_of(job)
    if device is not None and job.demand is not None:
        weights.let_go(state, device, job)


def _forget_holder(state: State, job: Job) -> None:
    job.turn = HOLDING  # it wants no other turn
    _end(state, job)


def _released_ahead(state: State, job: Job) -> None:
    """End a turn that was passed to the job before the core hears of that: `TurnPassed` frees the lane later."""
    _lane(state, job).ahead = job.id
    _stop_waiting(state, job)


def _pass_on(state: State, job: Job, to: Job | None) -> None:
    lane = _lane(state, job)
    ahead = lane.ahead
    _end(state, job)
    if to is not None and to.lane == lane.id and to.attached and to.id != ahead:
        _grant(state, lane, to)


def _end(state: State, job: Job) -> None:
    """End the holder's turn.  If it has asked for another meanwhile it waits for that."""
    lane, turn = _lane(state, job), job.turn
    assert isinstance(turn, Holding)
    if lane.successor is not None and job.attached:
        # One may have been named after it had looked; the name must not be there when its next turn ends.
        state.emit(NameSuccessor(lane.id, job.id, None))
    total = attained(state, job)
    lane.virtual_us = max(lane.virtual_us, job.virtual_us)
    gave_way = _awaited(state, lane) or lane.yield_asked is not YieldAsked.NO
    _clear(state, lane)
    job.set(turn=IDLE, gave_way=gave_way, restoring_us=0, idle_since_us=state.now)
    engines.ends(state, state.devices[lane.device], job)
    reconcile_time(state, job, total)
    _tell_device(state, lane, job)
    if turn.again is not None:
        want(state, job, turn.again.urgent, turn.again.demand)


def _awaited(state: State, lane: Lane) -> bool:
    """Whether others need the holder's memory: a waiter, or the first in the queue."""
    first = state.jobs[lane.queue[0][-1]] if lane.queue else None
    return lane.waiter is not None or (first is not None and not ready(first))


def _clear(state: State, lane: Lane) -> None:
    """Remove the lane's holder; what was asked of it is not asked any more."""
    lane.holder, lane.successor, lane.ahead = None, None, None
    lane.yield_asked, lane.for_memory, lane.due = YieldAsked.NO, False, None
    lane.waiter, lane.reclaimed, lane.watch_us = None, False, None
    if lane.preempt.state is not PreemptState.NONE:
        end_preemption(state, lane)
    state.timers.cancel_each(("yield", "forced"), lane.id)
    state.touch_lane(lane.id)


def end_preemption(state: State, lane: Lane) -> None:
    """End the preemption of the lane's holder, which goes on, or whose turn is over."""
    lane.preempt = UNDISTURBED
    state.timers.cancel(("pause", lane.id))


def _tell_device(state: State, lane: Lane, job: Job) -> None:
    """Let others of the device compute, or have the memory, now that the job's turn is over."""
    device = state.devices[lane.device]
    if device.co_runner_count == 2:  # one alone is not measured beside others, nor are more than two
        state.co_runners_changed[lane.device] = None
    turn_over(state, device, job)
    if job.demand is not None:
        weights.let_go(state, device, job)
    if device.requests or device.waiters or job.paused or device.shortfall:
        state.touch_device(device.spec.id)


def _begin(state: State, job: Job) -> None:
    """Give the job the turn of its lane, which is free."""
    lane = _lane(state, job)
    device = state.devices[lane.device]
    if job.urgent and device.excluding:
        protect(state, lane)
    leave_queue(state, lane, job)
    job.set(turn=HOLDING, promised_us=None)
    engines.begins(state, device, job)
    lane.holder, lane.turn_us, lane.turn_base_us = job.id, state.now, job.attained_us
    if job.window is not None:
        co_runners.begins(state, device, job.window)
    if device.co_runner_count == 2:
        state.co_runners_changed[lane.device] = None
    warmup.used(state, device, job)
    state.touch_lane(lane.id)
    if device.waiters:
        state.touch_device(device.spec.id)  # memory that it was promised is in use now: its turn can be asked for


def _grant(state: State, lane: Lane, job: Job) -> None:
    assert job.lane == lane.id and lane.holder is None, "a lane has one turn"
    TURNS.act(job.turn.state, GRANTED)(state, job)


def protect(state: State, lane: Lane) -> None:
    """Protect the lane's holder, which has a signal to handle, from preemption by services for a while."""
    lane.protected_until_us = state.now + state.settings.service_patience_us
    state.touch_device(lane.device)


def _lane(state: State, job: Job) -> Lane:
    assert job.lane is not None, "who has a seat has a lane"
    return state.lanes[job.lane]


# Who computes


def refresh(state: State, lane: Lane) -> None:
    """Update the lane's seats from its queue: who computes, who is next, whether the holder should yield."""
    if state.restarting:
        return
    if lane.holder is None:
        chosen = _chosen(state, lane)
        if chosen is None:
            return
        _grant(state, lane, chosen)
        state.emit(GrantTurn(lane.id, chosen.id))
    assert lane.holder is not None
    holder = state.jobs[lane.holder]
    if _undisturbed(state, lane, holder):
        state.dirty_lanes.pop(lane.id, None)  # touched by the grant; a second look would find the same
        return
    best = state.jobs[lane.queue[0][-1]] if lane.queue else None
    successor = best.id if best is not None and ready(best) and may_start(state, best) else None
    if successor != lane.successor:
        lane.successor = successor
        state.emit(NameSuccessor(lane.id, holder.id, successor))
    request_yield(state, lane, holder)


def _undisturbed(state: State, lane: Lane, holder: Job) -> bool:
    """Whether no other job wants the lane's turn, or its holder's memory, and nothing has been asked of the holder."""
    wanted = lane.queue or lane.successor is not None or lane.waiter is not None or lane.reclaimed
    asked = lane.yield_asked is not YieldAsked.NO or lane.watch_us is not None or lane.due is not None
    device = state.devices[lane.device]
    if wanted or asked or lane.preempt.state is not PreemptState.NONE or device.excluding or device.exclusive_to:
        return False
    return not (holder.paused or holder.let_go)


def _chosen(state: State, lane: Lane) -> Job | None:
    """Choose the job for the free turn of a lane, by the list at the top of this file; None: no job, for now."""
    taker = state.devices[lane.device].exclusive_turn
    if taker in lane.jobs:  # 1
        return state.jobs[taker]
    if lane.serves or not lane.queue:  # 2, 3
        return None
    first = state.jobs[lane.queue[0][-1]]
    if ready(first):  # 4
        return first if may_start(state, first) else None
    if first.wait is WaitState.NONE and not first.offload_asked:  # 5
        state.touch_device(lane.device)
        return None
    if first.wait in (WaitState.MOVING, WaitState.TURNS):  # 6
        return None
    queued = (state.jobs[key[-1]] for key in lane.queue)  # 7
    return next((job for job in queued if ready(job) and may_start(state, job)), None)


TURNS = Table(
    {
        TurnState.IDLE: {
            TurnWanted: Edge(_begin_to_wait, (TurnState.WAITING, TurnState.IDLE)),
            GRANTED: Edge(_begin, (TurnState.HOLDING,)),  # passed to it before its want was heard of
            FORGOTTEN: Edge(_forget_waiting, (TurnState.IDLE,)),
        },
        TurnState.WAITING: {
            TurnWanted: Edge(_wait_on, (TurnState.WAITING, TurnState.IDLE)),
            GRANTED: Edge(_begin, (TurnState.HOLDING,)),
            TurnReleased: Edge(_released_ahead, (TurnState.IDLE,)),
            FORGOTTEN: Edge(_forget_waiting, (TurnState.IDLE,)),
        },
        TurnState.HOLDING: {
            TurnWanted: Edge(_want_another, (TurnState.HOLDING,)),
            TurnReleased: Edge(_end, (TurnState.IDLE, TurnState.WAITING)),
            TurnPassed: Edge(_pass_on, (TurnState.IDLE, TurnState.WAITING)),
            FORGOTTEN: Edge(_forget_holder, (TurnState.IDLE,)),
        },
    }
)
