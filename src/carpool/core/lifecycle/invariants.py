"""Invariants that hold after every event.  A violation is a defect of the core, told with the job's or lane's story."""

from __future__ import annotations

from itertools import chain

from carpool.core.events import InvariantError
from carpool.core.model import JobId, JobPhase
from carpool.core.state.amounts import ready
from carpool.core.state.device import Device, ExclusiveReason, Lane, Weights, YieldAsked
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import NOTHING, PreemptState
from carpool.core.state.slowdown_table import MOST_PAIRS
from carpool.core.state.state import State, require
from carpool.core.state.use import InUse
from carpool.core.turns.order import may_start
from carpool.core.turns.weights import own


def check(state: State) -> None:
    """Check all invariants of the state.  Raises InvariantError."""
    for device in state.devices.values():
        _check_device(state, device)
    for lane in state.lanes.values():
        _check_lane(state, lane)
    for job in state.jobs.values():
        _check_job(state, job)
    if state.store_kept != sum(job.kept for job in state.jobs.values()):
        raise InvariantError(f"the books of the host store say {state.store_kept}")
    _check_due(state)
    _check_arrays(state)
    _check_co_runners(state)
    _check_sums(state)


def _check_sums(state: State) -> None:
    """Check what is kept of all devices together."""
    counted = InUse()
    for number in (number for device in state.devices.values() for number in device.jobs):
        counted.add(state.jobs[number])
    if vars(counted) != vars(state.in_use):
        raise InvariantError(f"users have {vars(counted)} in use; the books say {vars(state.in_use)}")
    kept = {name for name, device in state.devices.items() if device.reservation or device.expected}
    if not kept <= state.marked or (not state.has_contexts and any(each.context for each in state.devices.values())):
        raise InvariantError(f"something is kept of {kept}; the books say {state.marked}")


def _check_co_runners(state: State) -> None:
    """Check that co-runners are the lanes that may compute, and that the table of pairs stays bounded."""
    if len(list(state.slowdowns.rows())) > MOST_PAIRS:
        raise InvariantError(f"more than {MOST_PAIRS} pairs are remembered")
    for device in state.devices.values():
        inhabited = [number for number in device.lanes if _is_inhabited(state, device, state.lanes[number])]
        if device.co_runner_count and sorted(inhabited) != [lane.id for lane in device.co_runners]:
            raise InvariantError(f"device {device.spec.id}: lanes {inhabited} are inhabited, not {device.co_runners}")
    for job in state.jobs.values():
        require(job.window is None or (job.attached and job.lane is not None), "measured where it is not", job)


def _is_inhabited(state: State, device: Device, lane: Lane) -> bool:
    return any(state.jobs[number].attached and number not in device.excluding for number in lane.jobs)


def _check_due(state: State) -> None:
    """Check that each overdue job is queued, and listed once."""
    if len(set(state.due)) != len(state.due):
        raise InvariantError(f"overdue more than once: {state.due}")
    for number in (*state.due, *sorted(state.claims)):
        require(state.jobs[number].phase is JobPhase.QUEUED, "overdue, but not queued", state.jobs[number])


def _check_arrays(state: State) -> None:
    """Check that jobs that wait only for a place are listed as such, and that jobs that may not start have none."""
    waiting = {number for places in state.arrays.values() for number in places.waiting}
    if waiting != {job.id for job in state.jobs.values() if job.no_place}:
        raise InvariantError(f"jobs {sorted(waiting)} are listed as those without a place in their array")
    listed = chain.from_iterable(known.jobs for known in state.array_memory.values())
    for job in map(state.jobs.__getitem__, listed):
        require(job.phase is not JobPhase.ENDED, "ended, and still listed in its array", job)
    places = chain.from_iterable(places.taken | places.waiting for places in state.arrays.values())
    for job in map(state.jobs.__getitem__, places):
        barred = job.barred and job.phase is JobPhase.QUEUED
        require(job.phase is not JobPhase.ENDED and not barred, "has, or waits for, a place in its array", job)


def _check_device(state: State, device: Device) -> None:
    """Check the safety condition, with all sums made anew: grants, lanes and weights fit into the capacity."""
    name = device.spec.id
    persistent = sum(state.jobs[number].reserved.persistent for number in device.jobs)
    lanes = sum(state.lanes[number].size for number in device.lanes)
    if (persistent, lanes) != (device.persistent, device.lane_bytes):
        books = f"books say {device.persistent} + {device.lane_bytes}"
        raise InvariantError(f"device {name}: persistent {persistent} + lanes {lanes}, but the {books}")
    weights = _check_weights(state, device)
    if persistent + lanes + weights > device.spec.capacity + device.excess:
        sums = f"{persistent} + {lanes} + {weights} bytes"
        raise InvariantError(f"device {name}: {sums} exceed the capacity {device.spec.capacity}")
    _check_exclusive(state, device)
    _check_held(state, device)
    _check_exclusive_turns(state, device)
    _check_services(state, device)
    _check_names(state, device)


def _check_names(state: State, device: Device) -> None:
    """Check that the jobs that a device speaks of are there, and that those that it waits for are queued."""
    named = {*device.warming_up, *device.waiters, *device.contexts, *(entry[1] for entry in device.requests)}
    absent = (named | {device.grower}) - device.jobs - {None}
    if absent:
        raise InvariantError(f"device {device.spec.id} still speaks of jobs {absent}, which are not there")
    for number in {device.expected, device.reservation} - {None}:
        assert number is not None
        require(
            state.jobs[number].phase is JobPhase.QUEUED,
            f"{device.spec.id} waits for it, but not queued",
            state.jobs[number],
        )


def _check_exclusive(state: State, device: Device) -> None:
    """Check that a job submitted as exclusive is alone, and that others yield to one that was found to be exclusive."""
    name, holder, numbers = device.spec.id, device.exclusive_holder, device.exclusive_jobs
    if any(use.reason is ExclusiveReason.SUBMITTED for use in device.exclusive_to) and device.jobs != {holder}:
        raise InvariantError(f"device {name} is exclusive to job {holder}, but there are {sorted(device.jobs)}")
    for job in map(state.jobs.__getitem__, numbers):
        need = job.exclusive or job.found_exclusive is not None
        require(need and job.id in device.jobs, f"{name} is exclusive to it, but it need not have that to itself", job)
    if holder is not None and not device.exclusive_waived and not state.restarting:
        for number in device.lanes:
            _check_lane_beside(state, device, state.lanes[number], state.jobs[holder])


def _check_lane_beside(state: State, device: Device, lane: Lane, exclusive: Job) -> None:
    """Check one lane of a device that a job has to itself."""
    asked = lane.yield_asked is not YieldAsked.NO
    if lane.holder == exclusive.id:
        may_stay = not exclusive.paused and not state.beside_others(device)
        require(not (asked and may_stay), "its holder has the device to itself, but must yield", lane)
    elif lane.holder is not None:
        beside = state.may_compute_beside(device, state.jobs[lane.holder])
        require(asked or beside, "held, though another has the device to itself", lane)


def _check_held(state: State, device: Device) -> None:
    """Check that a job's further devices have no other job."""
    name = device.spec.id
    for use in device.exclusive_to:
        elsewhere = use.reason is ExclusiveReason.SEATED_ELSEWHERE
        if elsewhere and (device.jobs or name not in state.jobs[use.job].devices[1:]):
            raise InvariantError(f"device {name} is held for job {use.job}, but not as one of its devices alone")


def _check_exclusive_turns(state: State, device: Device) -> None:
    """Check that a job computes alone in an exclusive turn, and that suspended jobs have nothing on the device."""
    excluding = {number for number in device.jobs if state.jobs[number].excludes}
    if device.excluding != excluding or device.exclusive_turn not in (None, *excluding):
        raise InvariantError(
            f"device {device.spec.id}: {device.excluding} exclude others and {device.exclusive_turn}, not {excluding}"
        )
    for job in (state.jobs[number] for number in excluding):
        agree = job.holds == (device.exclusive_turn == job.id)
        require(agree, "its turn and that of the whole device do not agree", job)
        if job.suspends:
            _check_suspended(state, device, job)


def _check_suspended(state: State, device: Device, job: Job) -> None:
    require(job.offloaded == (job.attached and not job.holds), "neither suspended nor on its device", job)
    if not job.holds:
        require(job.reserved == NOTHING, "suspended, but on its device", job)
        return
    require(job.reserved.persistent >= job.usage.persistent_live, "less than was measured", job)
    others = [holder for number in device.lanes if (holder := state.lanes[number].holder) != job.id]
    require(not any(others), f"it has the whole device, but {others} compute", job)


def _check_weights(state: State, device: Device) -> int:
    """Return the bytes of weights on the device; check that weights in use or promised are there and as wanted."""
    there = [weights for weights in device.weights.values() if weights.resident]
    bytes_, kept = sum(each.size for each in there), sum(each.size for each in there if each.users)
    if (bytes_, kept) != (device.weight_bytes, device.weights_kept):
        books = f"{device.weight_bytes}, of which {device.weights_kept}"
        raise InvariantError(f"device {device.spec.id}: {bytes_} bytes of weights, {kept} kept; the books say {books}")
    for weights in device.weights.values():
        for number in weights.users:
            _check_user(weights, state.jobs[number])
    return bytes_


def _check_user(weights: Weights, job: Job) -> None:
    """Check one service that keeps weights on a device."""
    meant = job.demand is not None and (job.spec.owner, job.demand.weights) == (weights.owner, weights.key)
    require(weights.resident and meant, f"promised {weights.key!r}, which it does not want, or lacks", job)
    require(job.wanted or job.holds, "keeps weights, but wants no turn", job)


def _check_services(state: State, device: Device) -> None:
    """Check that no job computes beside a service, and that holders are paused only while a service needs that."""
    if state.restarting:
        return
    taker = None if device.exclusive_turn is None else state.jobs[device.exclusive_turn]
    needed = any(state.jobs[number].wait is WaitState.TURNS for number in device.excluding)
    for job in map(state.jobs.__getitem__, device.excluding):
        require(not (job.serves and job.holds) or _has_weights(device, job), "computes without its weights", job)
    for number in device.lanes:
        _check_pause(state.lanes[number], taker, needed)


def _check_pause(lane: Lane, taker: Job | None, needed: bool) -> None:
    """Check one lane beside ``taker``, which has the whole device.  ``needed``: a job waits for turns to end."""
    if lane.preempt.state is PreemptState.NONE:
        computes = taker is not None and lane.holder not in (None, taker.id)
        require(not computes, "held beside a job that has the device", lane)
        return
    require(lane.holder is not None and not lane.serves, "no holder there could pause", lane)
    asked = lane.yield_asked is not YieldAsked.NO
    require(needed or asked or (taker is not None and taker.serves), "paused without a service that needs it", lane)
    paused = lane.preempt.state is PreemptState.PAUSED
    require(taker is None or paused, "not paused, though another job has the device", lane)


def _has_weights(device: Device, job: Job) -> bool:
    """Whether the weights that the service computes with, if any, have been promised to it."""
    weights = own(device, job)
    promised = weights is not None and job.id in weights.users
    return not job.weights_unplaced and (job.demand is None or promised)


def _check_lane(state: State, lane: Lane) -> None:
    jobs = [state.jobs[number] for number in lane.jobs]
    require(bool(jobs), "empty, but not closed", lane)
    require(all(job.lane == lane.id and job.device == lane.device for job in jobs), "a job is somewhere else", lane)
    require(all(job.spec.owner == lane.owner for job in jobs), "jobs of several owners", lane)
    require(all(job.serves == lane.serves for job in jobs), "services and other jobs", lane)
    require(lane.size == max(job.reserved.ephemeral for job in jobs), "not as large as its largest job", lane)
    queued = [key[-1] for key in lane.queue]
    require(queued == [key[-1] for key in sorted(lane.queue)], "queue out of order", lane)
    require(set(queued) <= lane.jobs, "a job of another lane waits for its turn", lane)
    if not state.restarting:
        _check_turn(state, lane, queued)


def _check_turn(state: State, lane: Lane, queued: list[JobId]) -> None:
    """Check who has the turn of the lane, and who is to have it next."""
    able = [number for number in queued if ready(state.jobs[number]) and may_start(state, state.jobs[number])]
    if lane.holder is None:
        makes_room = bool(queued) and state.jobs[queued[0]].wait in (WaitState.MOVING, WaitState.TURNS)
        require(not able or makes_room, "free, though jobs wait for its turn", lane)
        require(lane.successor is None, "wrong successor", lane)
    else:
        _check_holder(lane, state.jobs[lane.holder], queued)
        following = queued[0] if able[:1] == queued[:1] != [] else None
        require(lane.successor == following, "wrong successor", lane)


def _check_holder(lane: Lane, holder: Job, queued: list[JobId]) -> None:
    require(holder.id in lane.jobs and holder.attached, "held by a job that is not there", lane)
    require(holder.id not in queued, "its holder waits for its turn", lane)
    require(not holder.offloaded, "held by a job whose memory is not there", lane)


def _check_job(state: State, job: Job) -> None:
    placed = job.phase in (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)
    homes = sum(job.id in lane.jobs for lane in state.lanes.values()) if job.lane is not None else 0
    require(homes == (job.lane is not None), f"in {homes} lanes", job)
    require(placed or job.lane is None, "ended or queued, but in a lane", job)
    require(job.limit.persistent <= job.reserved.persistent, "persistent limit above its reservation", job)
    require(job.limit.ephemeral <= job.reserved.ephemeral, "ephemeral limit above its reservation", job)
    require(job.offloaded or job.stored == NOTHING, "memory in the host store, but not offloaded", job)
    require(not job.offloaded or job.reserved == job.limit, "offloaded, but memory is reserved", job)
    require(job.attached or job.kept == 0, "the host store keeps memory for it, but it is gone", job)
    require((job.outcome is not None) == (job.phase is JobPhase.ENDED), "outcome and phase do not agree", job)
    _check_wait(state, job)


def _check_wait(state: State, job: Job) -> None:
    lane = state.lane_of(job)
    waits = job.wanted and job.attached and not job.pending and not state.kept_out(job)
    require(job.attached or job.immovable is None, "traits of a process that is gone", job)
    require(job.holds == (lane is not None and lane.holder == job.id), "its lane says otherwise of its turn", job)
    if lane is not None:
        require((job.turn_key is not None) == waits, "its place in the lane's queue is wrong", job)
        require(job.turn_key is None or job.turn_key in lane.queue, "not in the queue of its lane", job)
