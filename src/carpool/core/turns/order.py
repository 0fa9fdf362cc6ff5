"""The order of turns: the queue of each lane, services before all other jobs, and turns of the whole device.

The queue of a lane has the jobs that could take its turn at once, by the policy's order, or that of services.

Services compute for requests, before all other jobs, and in lanes of their own.  While a service has its turn no other
job of its device has one.  A service is not asked for its turn: it gives the turn back when its queue is empty, and
only a service that has kept it beyond `Settings.forced_after_us` is treated like any other job.

While a job is to have a turn of the whole device, or has it, no other job of the device begins.  Checkpoint jobs have
such turns, for which other jobs leave the device, and services, for which other jobs only pause
(`core.memory.preemption`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from carpool.core.commands import DenyTurn
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import Demand, JobId, Micros, Serving
from carpool.core.policies.base import Key
from carpool.core.state.amounts import ready
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import PreemptState, TurnKey, Waiting
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.turns.engines import in_recess

#: Later than every deadline.
NEVER: Micros = 1 << 62


def may_start(state: State, job: Job) -> bool:
    """Whether the job may begin to compute; not if another job is to have the whole device for its turn, or has it."""
    device = state.device_of(job)
    if device is None or not device.excluding:
        return True
    if device.exclusive_turn is not None:
        return device.exclusive_turn == job.id
    if job.serves:
        return False  # a service begins with an exclusive turn, and not otherwise
    return not any(_keeps_out(state.jobs[number]) for number in device.excluding if number != job.id)


def _keeps_out(job: Job) -> bool:
    """Whether others may not begin because of the job; while room is made for a service they may still compute."""
    return job.wait is WaitState.TURNS or (job.wait is WaitState.MOVING and job.suspends)


def waiting_elsewhere(state: State, lane: Lane) -> list[Job]:
    """Return the jobs of other lanes that the holder keeps from computing because it has the whole device.

    They are holders that have paused, and the first in each queue; not jobs that an exclusive job keeps out anyway.
    """
    device = state.devices[lane.device]
    if device.exclusive_turn is None or device.exclusive_turn != lane.holder:
        return []
    others = [state.lanes[number] for number in sorted(device.lanes - {lane.id})]
    paused = [other.holder for other in others if other.preempt.state is PreemptState.PAUSED]
    jobs = (state.jobs[number] for number in (*paused, *heads(others)) if number is not None)
    return [job for job in jobs if not state.blocked_by_exclusive(job)]


def heads(lanes: Iterable[Lane]) -> list[JobId]:
    """Return the first job of each queue."""
    return [lane.queue[0][-1] for lane in lanes if lane.queue]


def order_changed(state: State, device: Device) -> None:
    """Note that a queue has changed: the job that has, or needs, the whole device has other rivals."""
    if device.exclusive_turn is not None:
        state.touch_lane(state.jobs[device.exclusive_turn].lane)
    if device.excluding:
        state.touch_device(device.spec.id)


def turn_over(state: State, device: Device, job: Job) -> None:
    """End the job's hold of the whole device, if it has it: the others may go on."""
    if device.exclusive_turn == job.id:
        device.exclusive_turn = None
        state.touch_device(device.spec.id)
        touch_lanes(state, device)


def touch_lanes(state: State, device: Device) -> None:
    """Have all lanes of the device refreshed."""
    for number in sorted(device.lanes):
        state.touch_lane(number)


def service_key(state: State, job: Job) -> Key:
    """Return the key that orders services (`Serving`); of equal ones the first to come is first."""
    assert job.spec.service is not None
    serving = state.settings.serving
    if serving == Serving.PRIORITY:
        return (-job.spec.service.priority,)
    if serving == Serving.EDF:
        return (NEVER if job.demand is None or job.demand.deadline_us is None else job.demand.deadline_us,)
    return ()


def accept_demand(state: State, job: Job, demand: Demand | None) -> bool:
    """Note what a service wants its next turn for; False: that can never be, and the service has been told so.

    Other jobs want nothing else than their turn.
    """
    if not job.serves or (job.wanted and demand in (None, job.demand)):
        return True  # a trap beside the want that it waits for
    device = state.device_of(job)
    assert device is not None
    weights.let_go(state, device, job)
    state.touch_device(job.device)
    if demand is None:
        return True
    reason = weights.refusal(device, job, demand)
    if reason is not None:
        state.emit(DenyTurn(job.id, reason))
        return False
    weights.want(state, device, job, demand)
    return True


def first_service(state: State, device: Device) -> Job | None:
    """Return the service that could compute at once and comes before all others; None: there is none."""
    queues = (lane.queue for number in device.lanes if (lane := state.lanes[number]).serves)
    able = [entry for queue in queues for entry in queue if _may_serve(state, device, state.jobs[entry[-1]])]
    return state.jobs[min(able)[-1]] if able else None


def _may_serve(state: State, device: Device, job: Job) -> bool:
    return ready(job) and not in_recess(state, device, job)


def hurries(job: Job) -> bool:
    """Whether the service's demand has a deadline."""
    return job.demand is not None and job.demand.deadline_us is not None


def copied_us(device: Device, job: Job) -> Micros:
    """Return when the weights of the job's turn have been copied; 0: it has no weights, or the time is unknown."""
    wanted = weights.own(device, job)
    return 0 if wanted is None else wanted.there_us


def latest_us(state: State, job: Job) -> Micros:
    """Return when a service has to begin to meet its deadline; without one: when it has waited long enough.

    Weights that are still being copied count as if computing began behind the last of them.
    """
    demand, device = job.demand, state.device_of(job)
    if job.is_engine:
        return job.wanted_us
    if demand is None or demand.deadline_us is None or device is None:
        return job.wanted_us + state.settings.service_patience_us
    return demand.deadline_us - demand.compute_us - max(0, copied_us(device, job) - state.now)


def computes_before(job: Job, other: Job) -> bool:
    """Whether ``job``, which waits for its turn, computes before ``other``; one of them at least is a service."""
    if job.serves != other.serves:
        return job.serves
    return job.turn_key is not None and (other.turn_key is None or job.turn_key < other.turn_key)


def rank(state: State, job: Job) -> None:
    """Bring the job's place in its lane's queue up to date.

    A job has no place in the queue while it waits for memory that it requested, is paused, or is blocked by an
    exclusive job.  A job whose memory is in the host store has one, and gets the memory when it is the first.
    """
    lane, turn = state.lane_of(job), job.turn
    if lane is None or not isinstance(turn, Waiting):
        return
    may = job.attached and not job.pending and not state.kept_out(job)
    key = _key(state, job, turn) if may else None
    if key == turn.key:
        return
    _unqueue(lane, job)
    if key is not None:
        insort(lane.queue, key)
    turn.key = key
    job.cached = None  # its view has the cost of a restore, too, which is learned meanwhile
    _queue_changed(state, lane)


def _unqueue(lane: Lane, job: Job) -> None:
    if job.turn.key is not None:
        del lane.queue[bisect_left(lane.queue, job.turn.key)]


def _queue_changed(state: State, lane: Lane) -> None:
    state.touch_lane(lane.id)
    order_changed(state, state.devices[lane.device])


def leave_queue(state: State, lane: Lane, job: Job) -> None:
    """Take the job out of the lane's queue; the caller sets the next state of its turn."""
    if job.turn.key is not None:
        _unqueue(lane, job)
        _queue_changed(state, lane)


def _key(state: State, job: Job, turn: Waiting) -> TurnKey:
    if job.spec.service is not None:
        key = service_key(state, job)
    else:
        key = state.policy.turn_key(lazy_view(state), job_view(state, job))
    return (0 if turn.urgent else 1, key, turn.number, job.id)


def reorder(state: State) -> None:
    """Make all keys anew, after a change of the policy or of settings."""
    for lane in state.lanes.values():
        jobs = [state.jobs[key[-1]] for key in lane.queue]
        lane.queue, lane.due = [], None
        for job in jobs:
            assert isinstance(job.turn, Waiting), "only those that wait are in the queue"
            job.turn.key, job.cached = None, None
            rank(state, job)
        state.touch_lane(lane.id)
