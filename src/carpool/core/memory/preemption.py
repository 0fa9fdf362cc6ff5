"""Preemption by services: the holders of a device pause, one service computes, then they go on.

Pausing is no switch.  The holder is closed, nothing is saved, and its lane stays its own: a lane whose holder has
paused counts as held.  It is asked to pause at its next iteration boundary if the deadline allows that, otherwise at
once.  Only where a service needs the memory of a paused job is that asked for its turn as well (`yielding.press`): then
it has to save what it has in the lane.
"""

from __future__ import annotations

from carpool.core.commands import GrantTurn, PauseTurn, WithdrawYield
from carpool.core.memory import suspension
from carpool.core.model import Micros
from carpool.core.state.amounts import ready
from carpool.core.state.device import Device
from carpool.core.state.job import Claim, Job
from carpool.core.state.lane import Lane, Pause, YieldAsked
from carpool.core.state.state import State
from carpool.core.turns import services
from carpool.core.turns.turns import spare


def advance(state: State, device: Device) -> None:
    """Give the device to the service that comes first, or see to it that it gets it; without one all go on."""
    if device.guest is not None or state.restarting:
        return
    job = None if _urgent(state, device) else services.first(state, device)
    lanes = [state.lanes[number] for number in sorted(device.lanes)]
    for lane in lanes:
        spared = lane.pause in (Pause.BOUNDARY, Pause.FORCED) and state.held_off(holder(state, lane))
        if lane.pause is not Pause.NO and (job is None or spared):
            _take_back(state, lane)
    if job is None:
        return
    computing = [lane for lane in suspension.in_the_way(state, device, job) if lane.pause is not Pause.PAUSED]
    if not computing:
        job.claim = Claim.NONE
        suspension.comes(state, device, job)
        return
    job.claim = Claim.TURNS
    device.claims.add(job.id)
    for lane in computing:
        if not state.held_off(holder(state, lane)):  # such a one has to give its turn away
            _ask(state, lane, job)


def holder(state: State, lane: Lane) -> Job:
    assert lane.holder is not None, "only holders pause"
    return state.jobs[lane.holder]


def _urgent(state: State, device: Device) -> bool:
    """Whether a job with a signal to handle could compute: it comes before services."""
    for lane in (state.lanes[number] for number in device.lanes):
        if lane.pause is Pause.PAUSED and holder(state, lane).urgent:
            return True
        head = lane.queue[0] if lane.queue and not lane.serves else None
        if head is not None and head[0] == 0 and ready(state.jobs[head[-1]]):
            return True
    return False


def _ask(state: State, lane: Lane, service: Job) -> None:
    """Ask a holder to pause, or again more firmly.  What it was asked before does not count any more."""
    job, now = holder(state, lane), state.now
    if now < lane.spared_us:
        state.timers.set(("pause", lane.id), lane.spared_us)
        return
    latest = services.latest_us(state, service)
    if lane.pause is Pause.NO:
        forget_yield(state, lane)
        lane.pause_us, lane.latest_us = now, latest
    lane.latest_us = min(lane.latest_us, latest)
    late = now >= lane.latest_us or (services.hurries(service) and _boundary_us(lane, job) > lane.latest_us)
    forced = late or bool(job.pending)
    wanted = Pause.FORCED if forced else Pause.BOUNDARY
    if not forced:
        state.timers.set(("pause", lane.id), lane.latest_us)
    if lane.pause < wanted:
        lane.pause = wanted
        state.emit(PauseTurn(job.id, forced))


def _boundary_us(lane: Lane, job: Job) -> Micros:
    """When the holder comes to a boundary, at the latest; if nobody knows how long its iterations take, at once."""
    return lane.pause_us + (job.iteration_us or 0)


def forget_yield(state: State, lane: Lane) -> None:
    """What the holder was asked for the sake of others; if they still need it, it is asked again when it goes on."""
    lane.yield_asked, lane.for_memory, lane.watch_us, lane.due = YieldAsked.NO, False, None, None
    state.timers.cancel(("yield", lane.id))
    state.timers.cancel(("forced", lane.id))


def _take_back(state: State, lane: Lane) -> None:
    """No service needs it: the holder goes on, unless it has been asked for its turn as well, or will be."""
    job = holder(state, lane)
    if lane.yield_asked is not YieldAsked.NO:
        return
    state.touch_lane(lane.id)
    if lane.pause is Pause.PAUSED and state.held_off(job):
        return
    state.timers.cancel(("pause", lane.id))
    if lane.pause is not Pause.PAUSED:
        lane.pause = Pause.NO
        state.emit(WithdrawYield(job.id))
        return
    lane.pause = Pause.NO
    lane.turn_us += state.now - lane.pause_us
    if job.urgent:
        spare(state, lane)
    job.set(urgent=False, wants_again=False)  # what it wanted was to go on
    state.emit(GrantTurn(lane.id, job.id))


def paused(state: State, lane: Lane) -> None:
    """The holder has paused.  If that is not needed any more it goes on at once.

    One that was then asked for its turn, at once, gives that back; to a boundary it does not come.
    """
    if lane.pause is Pause.PAUSED:
        return
    if lane.yield_asked is not YieldAsked.FORCED:
        forget_yield(state, lane)
    lane.pause, lane.pause_us = Pause.PAUSED, state.now
    state.timers.cancel(("pause", lane.id))
    advance(state, state.devices[lane.device])
