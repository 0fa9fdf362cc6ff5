"""Whole devices: each job gets as many as it needs, all at once, or waits.

At one instant everything that happens is noted first; then, with the `Tick` of that instant, one scheduling pass
follows. Without preemption the pass starts jobs in the order of the policy.  With it the pass orders all jobs anew,
takes the first ones that fit, and preempts those that run and are not among them.

The order is stable: jobs of equal key keep the order they had.  Numbers stand for it.  A job whose key has become
larger since it was last looked at stood before all that have this key, one whose key has become smaller stood behind
them, and one that is new comes last.  So only the keys of running jobs are ever asked for again, and a pass costs the
same however many jobs wait.
"""

from __future__ import annotations

import heapq

from carpool.core.commands import AllocateDevices, PreemptJob
from carpool.core.metering.usage import account, attained, settle_time
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import JobId, JobPhase, Reason, Usage
from carpool.core.policies.base import Key
from carpool.core.state.job import Job, Order
from carpool.core.state.state import State, WholeDevices

NEXT_CHANGE = "change"
_ALIVE = (JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING)


def whole(state: State) -> WholeDevices:
    assert state.whole is not None, "only called while whole devices are allocated"
    return state.whole


def add_device(state: State, name: str) -> None:
    pool = whole(state)
    pool.places[name] = len(pool.names)
    heapq.heappush(pool.free, len(pool.names))
    pool.names.append(name)
    pool.dirty = True


def impossible(state: State, job: Job) -> Reason | None:
    """Why the job could never run."""
    count = len(whole(state).names)
    if job.spec.gang <= count or not count:
        return None
    return Reason("too_many_devices", f"needs {job.spec.gang} devices, but there are {count}")


# Waiting


def enqueue(state: State, job: Job) -> None:
    """A new job comes last among its equals: where jobs are compared, after those that run have been looked at."""
    pool = whole(state)
    pool.newcomers.append(job)
    if pool.free or state.policy.preemptive:
        pool.dirty = True
    if not state.policy.preemptive:
        _line_up(state, pool)


def _line_up(state: State, pool: WholeDevices) -> None:
    """Newcomers join those that wait."""
    for job in pool.newcomers:
        if job.phase is JobPhase.QUEUED:
            pool.last += 1
            job.order = (_key(state, job), 1 if state.policy.requeue else 0, pool.last)
            _wait(pool, job)
    pool.newcomers.clear()


def _wait(pool: WholeDevices, job: Job) -> None:
    heap = pool.waiting.get(job.spec.gang)
    if heap is None:
        heap = pool.waiting[job.spec.gang] = []
    heapq.heappush(heap, (job.order, job))


def _head(pool: WholeDevices, heap: list[tuple[Order, Job]]) -> tuple[Order, Job] | None:
    """The first of a heap that still waits there."""
    while heap:
        order, job = heap[0]
        if job.order is order and job.id not in pool.running and job.phase in _ALIVE:
            return heap[0]
        heapq.heappop(heap)
    return None


def _best(pool: WholeDevices, fitting: int) -> tuple[Order, Job] | None:
    """The first of those that wait and need no more than ``fitting`` devices."""
    best = None
    for gang, heap in pool.waiting.items():
        if gang <= fitting and (head := _head(pool, heap)) is not None and (best is None or head[0] < best[0]):
            best = head
    return best


def _key(state: State, job: Job) -> Key:
    policy, view = state.policy, lazy_view(state)
    ask = policy.turn_key if policy.preemptive else policy.admission_key
    return ask(view, job_view(state, job))


# The pass


def schedule(state: State) -> None:
    """One scheduling pass, if anything has happened that could change who runs."""
    pool = whole(state)
    if not pool.dirty or state.restarting:
        return
    pool.dirty = False
    if state.policy.preemptive:
        _reschedule(state, pool)
    else:
        _start_waiting(state, pool)


def _start_waiting(state: State, pool: WholeDevices) -> None:
    backfill = state.backfill
    _serve_due(state, pool)
    while pool.free and not pool.due:  # what is being left after a change of policy is for those who are due
        best = _best(pool, len(pool.free) if backfill else len(pool.names))
        if best is None:
            return
        job = best[1]
        if job.spec.gang > len(pool.free):
            return
        heapq.heappop(pool.waiting[job.spec.gang])
        pool.running[job.id] = job
        if job.devices:
            pool.due.append(job)  # it is still leaving others
        else:
            _allocate(state, pool, job)


def _reschedule(state: State, pool: WholeDevices) -> None:
    room = len(pool.names) - sum(job.spec.gang for job in pool.stopping.values())
    if pool.newcomers or _best(pool, room) is not None:  # otherwise those who run go on
        running = _in_order(state, pool)
        _line_up(state, pool)
        _compare(state, pool, running, room)
    if state.policy.requeue:
        _reorder_queues(pool)


def _compare(state: State, pool: WholeDevices, running: list[Job], room: int) -> None:
    """Take the first ones that fit into ``room`` devices, running or not."""
    chosen: list[Job] = []
    losers: list[Job] = []
    place = 0
    while True:
        best = _best(pool, room)
        present = running[place] if place < len(running) else None
        if present is not None and (best is None or present.order < best[0]):
            place += 1
            if present.spec.gang <= room:
                room -= present.spec.gang
            else:
                losers.append(present)
        elif best is not None:
            job = heapq.heappop(pool.waiting[best[1].spec.gang])[1]
            chosen.append(job)
            pool.running[job.id] = job  # from now on it does not wait
            room -= job.spec.gang
        else:
            break
    _preempt(state, pool, losers)
    pool.due += chosen
    _serve_due(state, pool)


def _reorder_queues(pool: WholeDevices) -> None:
    """Those who run come first in their queue: first the ones that were there, then the ones that have joined, in
    order.
    """
    for job in sorted((job for job in pool.running.values() if job.order[1]), key=_order):
        pool.last += 1
        job.order = (job.order[0], 0, pool.last)


def _in_order(state: State, pool: WholeDevices) -> list[Job]:
    """The running jobs, with their keys as they are now."""
    jobs = sorted(pool.running.values(), key=_order)
    if state.policy.requeue:
        return jobs  # their keys change at known moments only, see `changed`
    grown: list[tuple[Job, Key]] = []
    for job in jobs:
        key = _key(state, job)
        if key < job.order[0]:
            pool.last += 1
            job.order = (key, 0, pool.last)
        elif key > job.order[0]:
            grown.append((job, key))
    for job, key in reversed(grown):
        pool.first -= 1
        job.order = (key, 0, pool.first)
    jobs.sort(key=_order)
    return jobs


def _order(job: Job) -> Order:
    return job.order


def _preempt(state: State, pool: WholeDevices, losers: list[Job]) -> None:
    """In queues they become the first of those that wait, in the order in which they ran."""
    for job in reversed(losers):
        if state.policy.requeue and not job.order[1]:
            pool.first -= 1
            job.order = (job.order[0], 1, pool.first)
        _wait(pool, job)
    for job in losers:
        if not _drop(state, pool, job):
            job.leaving = True
            state.emit(PreemptJob(job.id))


def _drop(state: State, pool: WholeDevices, job: Job) -> bool:
    """The job is not among those chosen any more.  Whether it was still waiting for its devices."""
    pool.running.pop(job.id, None)
    state.timers.cancel((NEXT_CHANGE, job.id))
    was_due = job in pool.due
    if was_due:
        pool.due.remove(job)
    return was_due


def _serve_due(state: State, pool: WholeDevices) -> None:
    """Give free devices to those who are to get some."""
    for job in tuple(pool.due):
        if not job.devices and job.spec.gang <= len(pool.free):
            pool.due.remove(job)
            _allocate(state, pool, job)


def _allocate(state: State, pool: WholeDevices, job: Job) -> None:
    """The first free devices; a job that starts for the first time gets a process."""
    places = [heapq.heappop(pool.free) for _ in range(job.spec.gang)]
    # What it takes to come back does not count as service: the cost is known from the last time it was preempted.
    computes_us = state.now + job.usage.switch_cost_us
    job.set(devices=tuple(pool.names[place] for place in places), devices_us=computes_us)
    if job.phase is JobPhase.QUEUED:
        job.set(phase=JobPhase.STARTING, started_us=state.now)
    state.emit(AllocateDevices(job.id, job.devices))
    _plan_change(state, job)


def _plan_change(state: State, job: Job) -> None:
    after = state.policy.next_change(lazy_view(state), job_view(state, job)) if state.policy.preemptive else None
    if after is not None:
        state.timers.set((NEXT_CHANGE, job.id), max(state.now, job.devices_us) + max(after, 1))


# What happens to those who run


def changed(state: State, numbers: list[JobId]) -> None:
    """The order has to be looked at again because of these jobs, which run."""
    pool = whole(state)
    for job in sorted((state.jobs[number] for number in numbers), key=lambda job: job.arrival):
        if state.policy.requeue and (key := _key(state, job)) != job.order[0]:
            pool.last += 1
            job.order = (key, 1, pool.last)
        pool.dirty = True
        _plan_change(state, job)


def preempted(state: State, job: Job, usage: Usage) -> None:
    """Its devices are free."""
    pool = whole(state)
    total = attained(state, job)
    account(state, job, usage)
    settle_time(job, total)
    _free(pool, job)
    if job.id not in pool.running and not state.policy.requeue:
        _reconsider(state, pool, job)
    _serve_due(state, pool)
    if pool.free and any(pool.waiting.values()):
        pool.dirty = True


def _reconsider(state: State, pool: WholeDevices, job: Job) -> None:
    """It has done a little more, or less, than was known when it was asked to leave."""
    key = _key(state, job)
    if key != job.order[0] and job.phase in _ALIVE:
        job.order = (key, *job.order[1:])
        _wait(pool, job)


def left(state: State, job: Job) -> None:
    """The job is over."""
    pool = whole(state)
    pool.stopping.pop(job.id, None)
    _drop(state, pool, job)
    if job.devices:
        _free(pool, job)
    if any(pool.waiting.values()):
        pool.dirty = True
    if pool.due:
        _serve_due(state, pool)


def _free(pool: WholeDevices, job: Job) -> None:
    for name in job.devices:
        heapq.heappush(pool.free, pool.places[name])
    job.devices, job.leaving = (), False


def stopping(state: State, job: Job) -> None:
    """It was cancelled: it keeps its devices until it has ended, and gets no others."""
    pool = whole(state)
    _drop(state, pool, job)
    if job.devices and not job.leaving:
        pool.stopping[job.id] = job
    pool.dirty = True


def reorder(state: State) -> None:
    """Another policy has other keys: everybody is put in order anew, by arrival among equals."""
    pool = whole(state)
    pool.waiting = {}
    pool.newcomers.clear()
    for job in state.jobs.values():
        if job.phase in _ALIVE and not job.unmet:
            pool.last += 1
            runs = job.id in pool.running
            job.order = (_key(state, job), 1 if state.policy.requeue and not runs else 0, pool.last)
            if not runs:
                _wait(pool, job)
            elif job.devices:
                state.timers.cancel((NEXT_CHANGE, job.id))
                _plan_change(state, job)
    pool.dirty = True


def explain(state: State, job: Job) -> Reason | None:
    """Why a job has no devices."""
    if job.devices or job.phase is JobPhase.STOPPING:
        return None
    free = len(whole(state).free)
    return Reason("devices", f"waiting for devices: needs {job.spec.gang}, {free} of {len(whole(state).names)} free")
