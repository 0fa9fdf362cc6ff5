"""Turns of the whole device: other jobs leave it for checkpoint jobs, and pause for services.

For a service the holders of a device pause until it has computed.  Pausing is not a switch: the holder is
closed, nothing is saved, and its lane stays its own: a lane whose holder has paused counts as held.  The holder is
asked to pause at its next iteration boundary if the deadline allows that, otherwise at once.  Only where a service
needs the memory of a paused job is that job asked for its turn as well (`yielding.request_yield`): then it has to save
what it has in the lane.

The table `PREEMPTION` at the end says what may be asked of a holder when, and what follows.

Checkpoint jobs are on their device only during their turns, and then no other job has a turn there.  Such a job
allocates without asking.  So its turn has the whole device: the others' turns have ended, what those jobs
keep is in the host store, and all that is left of the device is reserved for it.  When its turn ends the job has been
suspended, and its driver holds its memory.  The amount has been measured then: never is less reserved for the job
again.

Otherwise the job waits in the queue of its lane like any job, and for its memory like one that was offloaded.
"""

from __future__ import annotations

from carpool.core.commands import GrantMemory, GrantTurn, PauseTurn, WithdrawYield
from carpool.core.events import TurnPaused
from carpool.core.memory.grants import freed, reserve
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import Memory, Micros
from carpool.core.state.amounts import ready
from carpool.core.state.device import Device, Lane, YieldAsked
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import HOLDING, NOTHING, Edge, PauseAsked, Paused, PreemptState, Table, set_aside
from carpool.core.state.state import State
from carpool.core.turns import order
from carpool.core.turns.order import heads, touch_lanes
from carpool.core.turns.turns import end_preemption, protect

#: Causes that the core decides: a service needs the device, none does any more, the holder's turn is over.
NEEDED, NOT_NEEDED, TURN_OVER = "needed", "not needed", "turn over"


def advance(state: State, device: Device) -> None:
    """Give the device to the service that comes first, or ask holders to pause for it; without one all go on."""
    if device.exclusive_turn is not None or state.restarting:
        return
    service = None if _urgent(state, device) else order.first_service(state, device)
    for lane in (state.lanes[number] for number in sorted(device.lanes)):
        if lane.preempt.state is not PreemptState.NONE and (service is None or _has_to_yield(state, lane)):
            PREEMPTION.act(lane.preempt.state, NOT_NEEDED)(state, lane)
    if service is not None:
        _make_room_for(state, device, service)


def _has_to_yield(state: State, lane: Lane) -> bool:
    """Whether the lane's holder has to give its turn away anyway, and has not paused yet."""
    return lane.preempt.state is not PreemptState.PAUSED and state.kept_out(holder(state, lane))


def _make_room_for(state: State, device: Device, service: Job) -> None:
    lanes = in_the_way(state, device, service)
    computing = [lane for lane in lanes if lane.preempt.state is not PreemptState.PAUSED]
    if not computing:
        service.wait = WaitState.NONE
        give_device(state, device, service)
        return
    service.wait = WaitState.TURNS
    device.waiters.add(service.id)
    for lane in computing:
        if not state.kept_out(holder(state, lane)):  # otherwise it has to give its turn away
            PREEMPTION.act(lane.preempt.state, NEEDED)(state, lane, service)


def holder(state: State, lane: Lane) -> Job:
    """Return the holder of a lane that has one."""
    assert lane.holder is not None, "only holders pause"
    return state.jobs[lane.holder]


def _urgent(state: State, device: Device) -> bool:
    """Whether a job with a signal to handle could compute: such a job comes before services."""
    for lane in (state.lanes[number] for number in device.lanes):
        if lane.preempt.state is PreemptState.PAUSED and holder(state, lane).urgent:
            return True
        head = lane.queue[0] if lane.queue and not lane.serves else None
        if head is not None and head[0] == 0 and ready(state.jobs[head[-1]]):
            return True
    return False


def paused(state: State, lane: Lane) -> None:
    """Handle the answer of the lane's holder that it has paused."""
    PREEMPTION.act(lane.preempt.state, TurnPaused)(state, lane)


# What events and decisions do to the holder of a lane


def _ask_first(state: State, lane: Lane, service: Job) -> None:
    """Ask the holder to pause for a service; what it was asked before does not count any more."""
    if not _protected(state, lane):
        forget_yield(state, lane)
        _ask(state, lane, service, state.now, order.latest_us(state, service))


def _ask_again(state: State, lane: Lane, service: Job) -> None:
    """Ask a holder that has been asked to pause already, perhaps more firmly now."""
    asked = lane.preempt
    assert isinstance(asked, PauseAsked)
    if not _protected(state, lane):
        _ask(state, lane, service, asked.since_us, min(asked.latest_us, order.latest_us(state, service)))


def _protected(state: State, lane: Lane) -> bool:
    """Whether the lane's holder handles a signal; then a timer is set to ask it later."""
    if state.now >= lane.protected_until_us:
        return False
    state.timers.set(("pause", lane.id), lane.protected_until_us)
    return True


def _ask(state: State, lane: Lane, service: Job, since_us: Micros, latest_us: Micros) -> None:
    """Ask for a pause at a boundary, or at once where that would be too late."""
    job, before = holder(state, lane), lane.preempt.state
    boundary_us = since_us + (job.iteration_us or 0)  # at the latest; at once where the time of an iteration is unknown
    late = state.now >= latest_us or (order.hurries(service) and boundary_us > latest_us)
    forced = late or bool(job.pending)
    if not forced:
        state.timers.set(("pause", lane.id), latest_us)
    lane.preempt = PauseAsked(since_us, latest_us, forced or before is PreemptState.FORCED)
    if lane.preempt.state is not before:
        state.emit(PauseTurn(job.id, forced))


def forget_yield(state: State, lane: Lane) -> None:
    """Forget what the holder was asked for jobs other than services; if still needed, it is asked when it goes on."""
    lane.yield_asked, lane.for_memory, lane.watch_us, lane.due = YieldAsked.NO, False, None, None
    state.timers.cancel(("yield", lane.id))
    state.timers.cancel(("forced", lane.id))


def _withdraw(state: State, lane: Lane) -> None:
    """Take the request to pause back, unless the holder has been asked for its turn as well."""
    if lane.yield_asked is not YieldAsked.NO:
        return
    state.touch_lane(lane.id)
    end_preemption(state, lane)
    state.emit(WithdrawYield(holder(state, lane).id))


def _resume(state: State, lane: Lane) -> None:
    """Let the paused holder go on, unless it has been asked for its turn as well, or will be."""
    job, since = holder(state, lane), lane.preempt
    assert isinstance(since, Paused)
    if lane.yield_asked is not YieldAsked.NO:
        return
    state.touch_lane(lane.id)
    if state.kept_out(job):
        return
    end_preemption(state, lane)
    lane.turn_us += state.now - since.since_us
    if job.urgent:
        protect(state, lane)
    job.turn = HOLDING  # its want was to go on
    state.emit(GrantTurn(lane.id, job.id))


def _pause(state: State, lane: Lane) -> None:
    """Record that the holder has paused; if no service needs that any more, it goes on at once.

    A holder that was asked for its turn at once gives the turn back; a paused holder comes to no boundary.
    """
    if lane.yield_asked is not YieldAsked.FORCED:
        forget_yield(state, lane)
    lane.preempt = Paused(state.now)
    state.timers.cancel(("pause", lane.id))
    advance(state, state.devices[lane.device])


def _stay_paused(state: State, lane: Lane) -> None:
    """Ignore a repeated pause; its start time does not change."""


_ASKED_OR_NOT = (PreemptState.BOUNDARY, PreemptState.FORCED, PreemptState.NONE)
_PAUSED_OR_ON = (PreemptState.PAUSED, PreemptState.NONE)
_OVER = Edge(end_preemption, (PreemptState.NONE,))

PREEMPTION = Table(
    {
        PreemptState.NONE: {
            NEEDED: Edge(_ask_first, _ASKED_OR_NOT),
            TurnPaused: Edge(_pause, _PAUSED_OR_ON),  # it was asked, and the request was taken back
        },
        PreemptState.BOUNDARY: {
            NEEDED: Edge(_ask_again, (PreemptState.BOUNDARY, PreemptState.FORCED)),
            NOT_NEEDED: Edge(_withdraw, (PreemptState.NONE, PreemptState.BOUNDARY)),
            TurnPaused: Edge(_pause, _PAUSED_OR_ON),
            TURN_OVER: _OVER,
        },
        PreemptState.FORCED: {
            NEEDED: Edge(_ask_again, (PreemptState.FORCED,)),
            NOT_NEEDED: Edge(_withdraw, (PreemptState.NONE, PreemptState.FORCED)),
            TurnPaused: Edge(_pause, _PAUSED_OR_ON),
            TURN_OVER: _OVER,
        },
        PreemptState.PAUSED: {
            NOT_NEEDED: Edge(_resume, (PreemptState.NONE, PreemptState.PAUSED)),
            TurnPaused: Edge(_stay_paused, (PreemptState.PAUSED,)),
            TURN_OVER: _OVER,
        },
    }
)


def checkpoint_arrived(state: State, device: Device, job: Job) -> None:
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
    rivals = map(state.jobs.__getitem__, heads(lanes))
    return any(each.serves or state.policy.turn_key(view, job_view(state, each)) < own for each in rivals)


def in_the_way(state: State, device: Device, job: Job) -> list[Lane]:
    """Return the lanes in which other jobs compute."""
    lanes = [state.lanes[number] for number in sorted(device.lanes)]
    return [lane for lane in lanes if lane.holder not in (None, job.id)]


def give_device(state: State, device: Device, job: Job) -> None:
    """Give the whole device to the job, whose turn follows at once: its memory is there, and no other computes."""
    device.exclusive_turn = job.id
    touch_lanes(state, device)


def checkpoint_left(state: State, job: Job) -> None:
    """Take the memory of a checkpoint job whose turn is over: it has been suspended, and is off the device."""
    device = state.device_of(job)
    if not job.suspends or device is None:
        return
    job.set(residency=set_aside(job.residency, NOTHING), limit=NOTHING, promised_us=None)
    state.emit(GrantMemory(job.id, NOTHING))
    reserve(state, job, NOTHING)
    job.residency = set_aside(job.residency, share(state, device, job))
    freed(state, device)
