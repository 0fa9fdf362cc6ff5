"""Deadlocks: when every job that holds memory waits for more, one of them is evicted, whatever the device's mode.

A job that does nothing counts as waiting after a while; a job that an exclusive job keeps out, at once.
"""

from __future__ import annotations

from carpool.core.commands import RequestYield
from carpool.core.memory import contexts, idle_engines
from carpool.core.memory.eviction import stays, storable
from carpool.core.memory.exclusive import waive
from carpool.core.memory.grants import freed, stop_growing
from carpool.core.memory.requests import give_up
from carpool.core.memory.residency import offload, set_aside
from carpool.core.model import JobId, Micros, Reason
from carpool.core.state.amounts import needed_in_all
from carpool.core.state.device import Device, YieldAsked
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import NOTHING, PreemptState
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.turns.turns import deny
from carpool.core.units import format_size


def break_deadlock(state: State, device: Device, kept: bool) -> None:
    """Evict a job if jobs wait for memory and no job that holds any makes progress; else set a timer to look again.

    ``kept``: what is free is kept for a job that others make room for.
    """
    key = ("deadlock", device.spec.id)
    state.timers.cancel(key)
    holders = [job for number in sorted(device.jobs) if _has_memory(job := state.jobs[number])]
    if not _jobs_wait(state, device) or any(job.offload_asked for job in holders):
        return
    due = max((_still_since(state, job, device) for job in holders), default=state.now)
    if due > state.now:
        state.timers.set(key, due)
    elif any(_computes(state, job) for job in holders):
        _probe(state, device, holders)
        state.timers.set(key, state.now + state.settings.warm_timeout_us)
    elif (ends_us := idle_engines.due_us(state)) is not None:
        state.timers.set(key, ends_us)  # the store gets room
    else:
        _resolve(state, device, holders, kept)


def _has_memory(job: Job) -> bool:
    """Whether the job has memory, or is a service that keeps the weights of its turn and waits for more."""
    return job.reserved.total > 0 or (job.holds and bool(job.pending) and job.demand is not None)


def _jobs_wait(state: State, device: Device) -> bool:
    requesting = (state.jobs[number] for _, number, _ in device.requests)
    return bool(device.waiters) or not all(map(state.kept_out, requesting))


def _resolve(state: State, device: Device, holders: list[Job], kept: bool) -> None:
    """Let another job grow, or evict a job, where none that holds memory makes progress."""
    if device.grower is not None and _idle(state, state.jobs[device.grower]):
        # Nothing is measured while the grower sleeps: another job may grow.
        stop_growing(state, state.jobs[device.grower])
    elif not kept and (other := _held_back_by_grower(state, device)) is not None:
        # The grower gets no memory before others go on: the job whose request fits grows instead.
        device.grower = other.id
        freed(state, device)
    elif device.short is not None:
        _evict(state, device, holders, device.short)
    else:
        _thin_out(state, device)


def _computes(state: State, job: Job) -> bool:
    return job.holds and not job.pending


def _idle(state: State, job: Job) -> bool:
    return job.attached and not job.pending and not job.wanted and not job.holds


def _held_back_by_grower(state: State, device: Device) -> Job | None:
    """Find the first job that waits only because the grower, which lacks memory itself, is being measured.

    A job without memory of its own may keep some all the same: the weights of its turn.
    """
    if device.grower is None or state.jobs[device.grower].wait not in (WaitState.BLOCKED, WaitState.STORE):
        return None
    jobs = (state.jobs[number] for number in sorted(device.jobs - {device.grower}))
    waiting = (job for job in jobs if job.pending and not job.offloaded and not state.kept_out(job))
    return next((job for job in waiting if weights.total_cost(state, device, job) <= device.free), None)


def _lacks_memory(job: Job) -> bool:
    return bool(job.pending) or (job.wanted and (job.offloaded or job.weights_unplaced))


def _still_since(state: State, job: Job, device: Device) -> Micros:
    """Return when the job counts as making no progress, or is to be looked at again; 0: it counts at once."""
    timeout = state.settings.warm_timeout_us
    if _lacks_memory(job) or (state.kept_out(job) and not job.holds):
        return 0
    if _idle(state, job):
        return job.idle_since_us + timeout
    lane = state.lane_of(job)
    if lane is not None and lane.holder == job.id and lane.yield_asked is YieldAsked.NO and lane.watch_us is None:
        return max(lane.turn_us, device.short_since_us) + timeout
    return state.now + timeout


def _probe(state: State, device: Device, holders: list[Job]) -> None:
    """Ask jobs that compute to yield: a job that is alone on its lane keeps its turn even if it sleeps.

    An idle job then releases its turn, and a busy one comes back at once.  An exclusive job is not asked.
    """
    for job in holders:
        lane = state.lane_of(job)
        if (
            job.id not in (device.exclusive_holder, device.exclusive_turn)
            and lane is not None
            and _computes(state, job)
            and lane.yield_asked is YieldAsked.NO
            and lane.preempt.state is PreemptState.NONE
        ):
            lane.yield_asked, lane.for_memory = YieldAsked.BOUNDARY, True
            state.emit(RequestYield(job.id))


def _evict(state: State, device: Device, holders: list[Job], short: JobId) -> None:
    """Evict the holder that has been idle for longest; if none is idle, the one that was placed last."""
    if not holders or [job.id for job in holders] == [short]:
        _settle_contexts(state, device)
        return
    movable = [job for job in holders if _movable(state, device, job)]
    if movable:
        _move_out(state, device, min(movable, key=_leaves_at))
    elif not _settle_contexts(state, device):
        _give_in(state, device, holders, short)


def _movable(state: State, device: Device, job: Job) -> bool:
    return not (stays(state, job) and (job.reserved.persistent or job.id == device.exclusive_holder))


def _leaves_at(job: Job) -> tuple[int, int]:
    """Return the key by which jobs leave, smallest first."""
    return (1, -job.placed) if job.pending else (0, job.idle_since_us)


def _move_out(state: State, device: Device, victim: Job) -> None:
    lane = state.lane_of(victim)
    if lane is not None and lane.holder == victim.id:
        # It waits for memory in the middle of its turn.  When the turn has been released, this runs again.
        if lane.yield_asked is not YieldAsked.FORCED:
            lane.yield_asked, lane.for_memory = YieldAsked.FORCED, True
            state.emit(RequestYield(victim.id, forced=True))
    elif victim.reserved.persistent == 0:
        set_aside(state, victim, NOTHING)
        freed(state, device)
    elif victim.attached and state.now >= victim.unmovable_us:
        room, ends_us = storable(state, [victim]), idle_engines.due_us(state)
        if room or ends_us is None:  # if nothing makes room, better beyond the budget than never
            offload(state, victim)
        else:
            state.timers.set(("deadlock", device.spec.id), ends_us)


def _thin_out(state: State, device: Device) -> None:
    """Evict a job that contexts of others leave too little for, if all jobs lack memory and another job then fits.

    Where none would fit, a job fails: contexts stay.  Beside an exclusive job the others go on first.
    """
    jobs = [job for number in sorted(device.jobs) if not state.kept_out(job := state.jobs[number])]
    crowded = [job for job in jobs if _can_fail(job) and contexts.crowded_out(device, job)]
    if not crowded or _settle_contexts(state, device):
        return
    if device.exclusive_holder in [job.id for job in crowded] and not device.exclusive_waived:
        waive(state, device, True)
    elif len(jobs) > 1 and all(map(_lacks_memory, jobs)):
        _evict_crowded(state, device, jobs, crowded)


def _evict_crowded(state: State, device: Device, jobs: list[Job], crowded: list[Job]) -> None:
    fitting = next((job for job in jobs if _can_fail(job) and needed_in_all(job) <= device.usable), None)
    holders = [job for job in crowded if job.reserved.total]
    if holders and fitting is not None:
        _evict(state, device, holders, fitting.id)
        return
    text = f"the contexts of {len(device.jobs)} jobs leave {format_size(device.usable)} of {device.spec.id}"
    _fail(state, crowded, f"{text}, and each of them needs more")


def _can_fail(job: Job) -> bool:
    """Whether the job waits for an answer that may be an error: for memory, or for the weights of a turn."""
    return bool(job.pending) or (job.wanted and job.weights_unplaced)


def _fail(state: State, jobs: list[Job], text: str) -> None:
    """Answer the job that was placed last with an error, a service only if all are: its context stays."""
    last, reason = max(jobs, key=lambda job: (not job.serves, job.placed)), Reason("stuck", text)
    if last.pending:
        give_up(state, last, reason)
    else:
        deny(state, last, reason)


def _settle_contexts(state: State, device: Device) -> bool:
    """Release memory kept for contexts `warm_timeout_us` after the jobs' starts, or wait for that.  False: neither."""
    before = state.now - state.settings.warm_timeout_us
    start = contexts.settle(state, device, before)
    if start is not None and start > before:
        state.timers.set(("deadlock", device.spec.id), start + state.settings.warm_timeout_us)
    return start is not None


def _give_in(state: State, device: Device, holders: list[Job], short: JobId) -> None:
    """Resolve a deadlock in which nothing can be moved.

    Jobs that an exclusive job keeps out may go on meanwhile; where no job would ever go on, the job placed last fails.
    """
    if device.exclusive_holder == short and len(device.jobs) > 1 and not device.exclusive_waived:
        waive(state, device, True)
        return
    asking = [job for job in holders if job.pending and not job.paused]
    if asking and all(map(_lacks_memory, holders)):
        _fail_last(state, device, holders, asking)


def _fail_last(state: State, device: Device, holders: list[Job], asking: list[Job]) -> None:
    last = max(asking, key=lambda job: job.placed)
    if len(holders) > 1 and needed_in_all(last) <= device.usable:
        text = f"all jobs that have memory of {device.spec.id} wait for more, and none of it can be moved"
        _fail(state, [last], text)
    elif any(contexts.crowded_out(device, job) for job in asking):
        _give_in_without_memory(state, device)


def _give_in_without_memory(state: State, device: Device) -> None:
    """Fail the last job that has a context and no memory yet: nothing else makes room for jobs that have some."""
    jobs = [state.jobs[number] for number in sorted(device.contexts)]
    jobs = [job for job in jobs if job.pending and not job.paused and not job.reserved.total]
    if jobs:
        text = f"the contexts of {len(device.contexts)} jobs are in the way of memory of {device.spec.id}"
        _fail(state, jobs, f"{text} that cannot be moved, and whose job needs more")
