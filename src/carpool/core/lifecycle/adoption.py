"""Adoption: the core takes over jobs, lanes, grants and turns that it finds after a restart."""

from __future__ import annotations

from carpool.core.commands import GrantMemory, MoveJob, NameSuccessor, ResizeLane
from carpool.core.events import Adopted, IllegalTransition, WeightsFound
from carpool.core.lifecycle import limits
from carpool.core.lifecycle.lifecycle import BEGIN, KILL, PAUSE, to_the_end
from carpool.core.lifecycle.submissions import found_running
from carpool.core.memory import exclusive, preemption
from carpool.core.memory.grants import keep, keep_in_store, reserve
from carpool.core.memory.lanes import Place, enter, find_place
from carpool.core.metering import co_runners, warmup
from carpool.core.metering.usage import FULL_WEIGHT
from carpool.core.model import Demand, JobPhase, Memory
from carpool.core.placement.queue import dequeue, enqueue
from carpool.core.state.amounts import join
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job
from carpool.core.state.seat_states import (
    HOLDING,
    LEAVING,
    NOTHING,
    RESIDENT,
    Holding,
    NextTurn,
    Paused,
    Waiting,
    set_aside,
)
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.turns.order import rank


def refuse_contradiction(state: State, event: Adopted) -> None:
    """Raise IllegalTransition, before anything changes, if what was found contradicts the state."""
    for name in (event.device, *event.further):
        if name not in state.devices:
            raise IllegalTransition(f"job {event.job} was found on {name!r}, which is not a device of this daemon")
    if state.jobs[event.job].suspends and (event.attached or event.lane is not None):
        raise IllegalTransition(f"job {event.job} is suspended between its turns: it was found with a seat")
    lane = state.lanes.get(event.lane) if event.lane is not None else None
    if lane is None:
        return
    spec = state.jobs[event.job].spec
    if (lane.device, lane.owner, lane.serves) != (event.device, spec.owner, spec.service is not None):
        raise IllegalTransition(f"job {event.job} was found in lane {lane.id} of another device, owner or sort of work")
    if event.holds_turn and lane.holder is not None:
        raise IllegalTransition(f"jobs {lane.holder} and {event.job} both hold the turn of lane {lane.id}")


def adopt(state: State, job: Job, event: Adopted) -> None:
    """Record a job that was found running; its lane exists already, so it is recorded and not opened."""
    dequeue(state, job)
    found_running(state, job)
    for kind in (PAUSE, BEGIN):
        state.timers.cancel((kind, job.id))
    device = state.devices[event.device]
    _restore(state, job, event)
    device.jobs.add(job.id)
    job.tell = device.changed
    job.tell()
    if job.excludes:
        device.excluding.add(job.id)
    exclusive.hold_all(state, job, _all_devices(state, event))
    state.in_use.add(job)
    if job.exclusive:
        exclusive.claim(state, device, job)
    if event.lane is not None:
        _rejoin(state, job, event)
    elif not event.attached and not job.suspends:
        keep(state, job, event.granted.persistent)
    if not job.used_device:
        warmup.begin(state, device, job)
        state.timers.set(("warm", job.id), state.now + state.settings.warm_timeout_us)
    if job.phase is JobPhase.RUNNING and not event.over:
        limits.begin(state, job, event.started_us + event.paused_us)
    if job.phase is JobPhase.STOPPING:
        state.timers.set((KILL, job.id), state.now + state.settings.kill_after_us)
    used = device.persistent + device.lane_bytes + device.weight_bytes
    device.excess = max(device.excess, used - device.spec.capacity)


def _restore(state: State, job: Job, event: Adopted) -> None:
    """Set what was found of the job itself."""
    job.phase, job.device, job.started_us, job.placed = event.phase, event.device, event.started_us, state.number()
    job.timed_out = event.timed_out
    job.cancelled = event.phase is JobPhase.STOPPING and not event.timed_out
    job.attached = job.was_attached = event.attached
    job.adopted, job.pause_us, job.too_early = True, 0, False
    job.residency = LEAVING if event.offload_asked and not event.offloaded else RESIDENT
    job.usage, job.attained_us = event.usage, event.usage.device_us
    job.virtual_us = event.usage.device_us * FULL_WEIGHT // job.spec.weight
    job.time_levelled = event.usage.device_us > 0
    if event.usage.iterations and event.usage.device_us:
        job.iteration_us = event.usage.device_us // event.usage.iterations
    job.measured = event.usage.iterations >= state.settings.measured_after
    job.used_device = event.holds_turn or event.wants_turn or event.granted.total > 0
    job.idle_since_us = state.now
    job.warned, job.warned_of_device_time = event.warned, event.warned_of_device_time


def _all_devices(state: State, event: Adopted) -> tuple[Device, ...]:
    """Return the device of the job's seat, and its other devices as far as no other job was found there."""
    others = (state.devices[name] for name in dict.fromkeys(event.further) if name != event.device)
    return (state.devices[event.device], *(device for device in others if device.idle))


def _rejoin(state: State, job: Job, event: Adopted) -> None:
    assert event.lane is not None
    device = state.devices[event.device]
    lane = state.lanes.get(event.lane)
    if lane is None:
        lane = state.lanes[event.lane] = Lane(event.lane, event.device, job.spec.owner, serves=job.serves)
        device.lanes.add(lane.id)
        state.next_lane = max(state.next_lane, lane.id + 1)
    lane.jobs.add(job.id)
    job.lane = lane.id
    _restore_memory(state, job, event)
    lane.virtual_us = max(lane.virtual_us, job.virtual_us)
    _restore_turn(state, job, lane, event)
    if job.serves:
        _serve_on(state, device, job, event)
    rank(state, job)
    state.touch_lane(lane.id)


def _restore_memory(state: State, job: Job, event: Adopted) -> None:
    peak = Memory(event.usage.persistent_peak, event.usage.ephemeral_peak)
    if event.offloaded:
        job.residency = set_aside(job.residency, join(event.granted, peak))
        job.limit = Memory(0, event.granted.ephemeral)
    else:
        job.limit = event.granted
        if peak.ephemeral > event.granted.ephemeral and not event.holds_turn:
            # The earlier daemon had taken this memory for other jobs; the job must get it back before its next turn.
            job.residency = set_aside(job.residency, Memory(event.granted.persistent, peak.ephemeral))
    keep_in_store(state, job, max(event.usage.stored, event.usage.kept, event.moved_out) if event.attached else 0)
    reserve(state, job, job.limit)


def _restore_turn(state: State, job: Job, lane: Lane, event: Adopted) -> None:
    if event.holds_turn:
        lane.holder, lane.turn_us, lane.turn_base_us = job.id, state.now, job.attained_us
        job.turn = HOLDING
        if event.paused:
            lane.preempt = Paused(state.now)
            job.turn = Holding(NextTurn(False, None)) if event.wants_turn else HOLDING
    elif event.wants_turn:
        job.turn, job.wanted_us = Waiting(state.number(), urgent=False), state.now


def _serve_on(state: State, device: Device, job: Job, event: Adopted) -> None:
    """Restore a service: one with a turn computes with its weights, one that waits is promised them anew."""
    if event.demand is not None and (event.holds_turn or event.wants_turn):
        weights.want(state, device, job, event.demand)
    if event.holds_turn:
        device.exclusive_turn, job.weights_unplaced = job.id, False
        weights.in_use(device, job)


def weights_found(state: State, event: WeightsFound) -> None:
    """Count weights that were found; those that no service could use are dropped when the restart is over.

    Raises IllegalTransition outside of a restart, and for an unknown device.
    """
    if not state.restarting:
        raise IllegalTransition(f"{event}: weights are found after a restart only")
    if event.device not in state.devices:
        raise IllegalTransition(f"{event}: this daemon has no such device")
    weights.on_device(state, state.devices[event.device], event.owner, Demand(event.key, event.size, event.reload_us))


def finish(state: State) -> None:
    """End the restart: lanes take the size that is recorded for them, and jobs without a lane get one."""
    state.restarting = False
    _order_retries(state)
    for lane in state.lanes.values():
        state.emit(ResizeLane(lane.id, lane.size))
        if lane.holder is not None:
            state.emit(NameSuccessor(lane.id, lane.holder, None))  # the former successor may have left
    for job in state.jobs.values():
        if job.offloaded:
            state.emit(GrantMemory(job.id, job.limit))
        if job.device is not None and job.lane is None and job.phase is not JobPhase.ENDED:
            _find_lane(state, job)
    co_runners.begin_anew(state)
    state.admit_all = True
    for device in state.devices.values():
        _settle_device(state, device)
    for number in state.lanes:
        state.touch_lane(number)


def _settle_device(state: State, device: Device) -> None:
    exclusive.holders_first(state, device)
    for owner in {each.owner: None for each in device.weights.values()}:
        weights.owner_left(state, device, owner)
    weights.give_way(state, device)
    if not device.excluding:
        preemption.advance(state, device)  # holders that paused for services that are gone go on
    state.touch_device(device.spec.id)


def _order_retries(state: State) -> None:
    """Move retried jobs behind all others, as before the restart, unless they ran out of memory."""
    for number in [number for _, _, number in state.queue]:
        job = state.jobs[number]
        if job.past and not job.recovering:
            dequeue(state, job)
            to_the_end(state, job)
            enqueue(state, job)


def _find_lane(state: State, job: Job) -> None:
    """Give a lane to a job that was started and had not attached; its memory grows on demand, as a newcomer's."""
    device = state.device_of(job)
    assert device is not None
    place = find_place(state, device, job, NOTHING)
    # Another user's lanes are not a reason to leave a running job without one: the bound is ignored.
    lane = enter(state, job, device, place if isinstance(place, Place) else Place(None, NOTHING))
    state.emit(MoveJob(job.id, lane.id))
