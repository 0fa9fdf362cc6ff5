"""The queue of a lane: the jobs that could take its turn at once, by the policy's order, or that of services."""

from __future__ import annotations

from bisect import bisect_left, insort

from carpool.core.metering.views import job_view, lazy_view
from carpool.core.state.device import Lane
from carpool.core.state.job import Job
from carpool.core.state.seat_states import TurnKey, Waiting
from carpool.core.state.state import State
from carpool.core.turns import services
from carpool.core.turns.exclusive_turns import order_changed


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
        key = services.key(state, job)
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
