"""Hold, release, pause, resume, requeue, change: what users may request for a job between submission and end.

The core hears of a request before the request is on the disk, so that nothing happens to the job meanwhile; the caller
gets the answer afterwards.  A request that cannot be recorded is undone.  Only a requeue, which ends processes, is on
the disk first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from carpool.core.events import Event, HoldChanged, JobChanged, PauseChanged, RequeueRequested
from carpool.core.model import Dependency, JobId, JobPhase
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.context import Caller, Context, administers
from carpool.daemon.api.jobs import show_job
from carpool.daemon.api.submit import check_changeable, check_dependency, core_spec
from carpool.daemon.hooks.engine_requests import EngineRequests
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.errors import JournalFull, RequestError
from carpool.options.requests import changed_options, dependencies
from carpool.options.table import Changeable
from carpool.protocol.api import BusyRequest, JobUpdate, SubmitRequest
from carpool.protocol.display import user_name


async def hold_job(call: ApiCall) -> object:
    """Keep a queued job from being placed until it is released.  Durable before the answer."""
    async with own_job(call, "hold it") as (context, job):
        if job.phase is not JobPhase.QUEUED:
            text = f"job {job.number} is {job.phase.value}: only a queued job can be held"
            raise RequestError(409, "not_queued", text, f"carpool pause {job.number} takes it off its device")
        if _says_more(job, job.control.held_by, call.who.uid):
            await _change(context, job, _hold_event, held_by=call.who.uid)
    return await show_job(call)


async def release_job(call: ApiCall) -> object:
    """Let a held job be placed.  Only administrators release a job that an administrator holds."""
    async with own_job(call, "release it") as (context, job):
        by = job.control.held_by
        if by is None:
            raise RequestError(
                409, "not_held", f"job {job.number} is not held", f"carpool show {job.number} says why it waits"
            )
        _require_same_rank(call, job, by, "held")
        await _change(context, job, _hold_event, held_by=None)
    return await show_job(call)


async def pause_job(call: ApiCall) -> object:
    """Move the job's memory off its device; its processes stay.  Durable before the answer."""
    async with own_job(call, "pause it") as (context, job):
        if job.phase is JobPhase.STOPPING:
            raise RequestError(409, "stopping", f"job {job.number} is being stopped", f"carpool wait {job.number}")
        if job.spec.service is not None and not job.is_engine:
            text = f"job {job.number} is a worker of models, which computes only for requests"
            raise RequestError(409, "service", text, "stop carpool serve instead")
        if _says_more(job, job.control.paused_by, call.who.uid):
            since = context.jobs.now_us() if job.control.paused_since_us is None else job.control.paused_since_us
            await _change(context, job, _pause_event, paused_by=call.who.uid, paused_since_us=since)
    return await show_job(call)


async def resume_job(call: ApiCall) -> object:
    """Let a paused job go on.  Only administrators resume a job that an administrator has paused."""
    async with own_job(call, "resume it") as (context, job):
        by, now_us = job.control.paused_by, context.jobs.now_us()
        if by is None:
            text = "stopped by a signal, and not by carpool pause" if job.stopped else "not paused"
            raise RequestError(
                409, "not_paused", f"job {job.number} is {text}", f"carpool show {job.number} says why it waits"
            )
        _require_same_rank(call, job, by, "paused")
        # A time limit counts from the start of an attempt: a pause before the start does not count.
        paused_us = 0 if job.phase is JobPhase.QUEUED else job.control.paused_in_all_us(now_us)
        since = now_us if job.stopped else None  # still stopped, by a signal
        await _change(context, job, _pause_event, paused_by=None, paused_since_us=since, paused_us=paused_us)
    return await show_job(call)


def _pause_event(job: JobRecord) -> Event:
    return PauseChanged(job.id, job.pauser)


def _require_same_rank(call: ApiCall, job: JobRecord, by: int, done: str) -> None:
    """Keep users from undoing what an administrator has done with their job.  Raises RequestError 403."""
    if by != job.owner and not administers(call.context, call.who):
        text = f"job {job.number} is {done} by {user_name(by)}, an administrator"
        raise RequestError(403, "not_operator", text, "ask an administrator of the daemon")


async def report_busy(call: ApiCall) -> object:
    """Hear from an engine's front that the engine has requests, or has none any more."""
    asked = await call.body(BusyRequest)
    job = call.job("say that it has requests")
    if not isinstance(job, JobRecord):
        raise RequestError(409, "ended", f"job {job.number} has ended", f"carpool show {job.number} says how")
    if not job.is_engine:
        text = f"job {job.number} is not an engine"
        raise RequestError(409, "not_an_engine", text, "carpool submit --service makes a job one")
    call.context.hooks.of(EngineRequests).report(job.id, asked.busy)
    return asked


async def requeue_job(call: ApiCall) -> object:
    """Stop a job that has been started, and queue its next attempt; a requeue does not count as a retry."""
    async with own_job(call, "requeue it") as (context, job):
        if job.phase not in (JobPhase.STARTING, JobPhase.RUNNING):
            text = f"job {job.number} is {job.phase.value}: only a job that runs can be requeued"
            raise RequestError(409, "not_running", text, f"carpool show {job.number} says more")
        if job.spec.foreground or not job.startable:
            text = f"job {job.number} cannot be started again: it runs in a terminal, or its environment is not known"
            raise RequestError(409, "not_startable", text, "cancel it, and submit it again")
        _check_requeues(context, job)
        await _record_requeue(context, job, call.who.uid)
        if context.jobs.live.get(job.id) is job and job.phase in (JobPhase.STARTING, JobPhase.RUNNING):
            job.mark_stopping()
            context.post(RequeueRequested(job.id, user_name(job.owner if job.requeued_by is None else job.requeued_by)))
    return await show_job(call)


def _check_requeues(context: Context, job: JobRecord) -> None:
    """Check that the job may be requeued again: a job may requeue itself, but not for ever.  Raises RequestError."""
    done, most = len(job.control.requeued), context.settings.current.max_requeues
    if done >= most:
        text = f"job {job.number} has been requeued {done} times, the most that one job may be (max_requeues)"
        hint = (
            f"cancel the job and submit it again, or ask an administrator for carpool set max_requeues={2 * most + 1}"
        )
        raise RequestError(409, "too_many_requeues", text, hint)


async def _record_requeue(context: Context, job: JobRecord, uid: int) -> None:
    """Record a requeue before the job is signalled: a new daemon must not take the signal for the job's own end."""
    before = job.control.requeued
    job.control = msgspec.structs.replace(job.control, requeued=before | {job.attempt: uid})
    try:
        await context.store.control(job)
    except JournalFull:
        _restore(context, job.id, {"requeued": before})
        raise


def _says_more(job: JobRecord, before: int | None, now: int) -> bool:
    """Whether a request adds to what is in force: an administrator's outranks that of the job's owner."""
    return before is None or (before == job.owner and now != job.owner)


def _hold_event(job: JobRecord) -> Event:
    by = job.control.held_by
    return HoldChanged(job.id, None if by is None else user_name(by))


@asynccontextmanager
async def own_job(call: ApiCall, what: str) -> AsyncIterator[tuple[Context, JobRecord]]:
    """Lock the job of the path, which has not ended, against other requests, and yield it.  Raises RequestError."""
    _, job = _own_job(call, what)
    async with job.changing:
        yield _own_job(call, what)


def _own_job(call: ApiCall, what: str) -> tuple[Context, JobRecord]:
    job = call.job(what)
    if not isinstance(job, JobRecord):
        text = f"job {job.number} has ended: {job.outcome.words}"
        raise RequestError(409, "ended", text, f"carpool show {job.number} shows how")
    return call.context, job


async def _change(context: Context, job: JobRecord, event: Callable[[JobRecord], Event], **changes: Any) -> None:
    """Change what is asked for the job; ``event`` makes of the job what the core is told.  Raises JournalFull."""
    before = {name: getattr(job.control, name) for name in changes}
    job.control = msgspec.structs.replace(job.control, **changes)
    context.post(event(job))
    try:
        await context.store.control(job)
    except JournalFull:
        present = _restore(context, job.id, before)
        if present is not None:
            context.post(event(present))
        raise


def _restore(context: Context, number: JobId, before: dict[str, Any]) -> JobRecord | None:
    """Undo a change that could not be recorded; return the job, perhaps in another attempt, or None if it has ended."""
    job = context.jobs.live.get(number)
    if job is not None:
        job.control = msgspec.structs.replace(job.control, **before)
    return job


async def update_job(call: ApiCall) -> object:
    """Change a job's submission at once.  Durable before the answer."""
    wanted = await call.body(JobUpdate)
    changes = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not msgspec.UNSET}
    async with own_job(call, "change it") as (context, job):
        spec = msgspec.structs.replace(job.spec, **changes)
        _check(context, job, spec, call.who)
        await _changed_spec(context, job, spec)
    return await show_job(call)


async def _changed_spec(context: Context, job: JobRecord, spec: SubmitRequest) -> None:
    """Change the job; undo a change that cannot be recorded, also if an attempt has ended meanwhile."""
    before = job.spec
    _apply(context, job, spec)
    try:
        await context.store.changed(job)
    except JournalFull:
        present = context.jobs.live.get(job.id)
        if present is not None:
            _apply(context, present, before)
        raise


def _apply(context: Context, job: JobRecord, spec: SubmitRequest) -> None:
    job.spec = spec
    context.post(JobChanged(job.id, core_spec(context, job)))


def _check(context: Context, job: JobRecord, spec: SubmitRequest, who: Caller) -> None:
    """Check a change; submitted values that do not change stay allowed.  Raises RequestError."""
    if job.phase is JobPhase.STOPPING:
        raise RequestError(409, "stopping", f"job {job.number} is being stopped", f"carpool wait {job.number}")
    changed = changed_options(job.spec, spec)
    late = [option.update_name for option in changed.values() if option.changeable is Changeable.QUEUED]
    if late and job.phase is not JobPhase.QUEUED:
        text = f"job {job.number} is {job.phase.value}: {late[0]} can be changed only of a queued job"
        raise RequestError(409, "not_queued", text, f"carpool requeue {job.number} puts it back into the queue")
    most = context.settings.current.max_time_us
    time_us, group = (spec.time_us if "time" in changed else most), (spec.group if "group" in changed else "")
    check_changeable(context, msgspec.structs.replace(spec, time_us=time_us, group=group), who)
    _check_dependencies(context, job, spec, who)


def _check_dependencies(context: Context, job: JobRecord, spec: SubmitRequest, who: Caller) -> None:
    known = set(_pairs(job.spec))
    new = [each for each in _pairs(spec) if each not in known]
    for number, kind in new:
        check_dependency(context, number, kind, who)
    chain = _way(context, [number for number, _ in new], job.id)
    if chain:
        text = " waits for ".join(f"job {each}" for each in [job.id, *chain])
        raise RequestError(409, "circular_dependency", f"{text}: none of them would ever start", "leave one out")


def _pairs(spec: SubmitRequest) -> list[tuple[JobId, Dependency]]:
    return [(number, kind) for kind, numbers in dependencies(spec) for number in numbers]


def _way(context: Context, starts: Sequence[JobId], end: JobId) -> list[JobId]:
    """Return a chain of dependencies from one of ``starts`` to ``end``, or an empty list; looks at each job once."""
    came_from: dict[JobId, JobId] = {start: start for start in starts}
    left = [*starts]
    while left and end not in came_from:
        job = context.jobs.live.get(number := left.pop())
        for _, numbers in dependencies(job.spec) if job is not None else ():
            new = [each for each in numbers if each not in came_from]
            left += new
            came_from |= dict.fromkeys(new, number)
    return _traced(came_from, end) if end in came_from else []


def _traced(came_from: Mapping[JobId, JobId], end: JobId) -> list[JobId]:
    """Return the chain that leads to ``end``; its first job came from itself."""
    way = [end]
    while came_from[way[0]] != way[0]:
        way.insert(0, came_from[way[0]])
    return way
