"""PATCH /v1/jobs/{id}: change what was submitted of a job that has not ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from carpool.core.events import JobChanged
from carpool.core.model import Dependency, JobId, JobPhase
from carpool.daemon.api.context import Caller, Context, caller
from carpool.daemon.api.job_control import own_job
from carpool.daemon.api.jobs import show_job
from carpool.daemon.api.middleware import read_body
from carpool.daemon.api.submit import check_changeable, check_dependency, core_spec
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.errors import JournalFull, RequestError
from carpool.options.requests import changed_options, dependencies
from carpool.options.table import Changeable
from carpool.protocol.api import JobUpdate, SubmitRequest


async def update_job(request: web.Request) -> web.Response:
    """Change a job's submission at once.  Durable before the answer."""
    wanted = await read_body(request, JobUpdate)
    changes = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not msgspec.UNSET}
    async with own_job(request, "change it") as (context, job):
        spec = msgspec.structs.replace(job.spec, **changes)
        _check(context, job, spec, caller(request))
        await _change(context, job, spec)
    return await show_job(request)


async def _change(context: Context, job: JobRecord, spec: SubmitRequest) -> None:
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
    same: dict[str, Any] = {} if "time" in changed else {"time_us": context.settings.current.max_time_us}
    same |= {} if "group" in changed else {"group": ""}
    check_changeable(context, msgspec.structs.replace(spec, **same), who)
    known = {(number, kind) for kind, numbers in dependencies(job.spec) for number in numbers}
    wanted = [(number, kind) for kind, numbers in dependencies(spec) for number in numbers]
    _check_dependencies(context, job, [each for each in wanted if each not in known], who)


def _check_dependencies(context: Context, job: JobRecord, new: Sequence[tuple[JobId, Dependency]], who: Caller) -> None:
    for number, kind in new:
        check_dependency(context, number, kind, who)
    chain = _way(context, [number for number, _ in new], job.id)
    if chain:
        text = " waits for ".join(f"job {each}" for each in [job.id, *chain])
        raise RequestError(409, "circular_dependency", f"{text}: none of them would ever start", "leave one out")


def _way(context: Context, starts: Sequence[JobId], end: JobId) -> list[JobId]:
    """Return a chain of dependencies from one of ``starts`` to ``end``, or an empty list; looks at each job once."""
    came_from: dict[JobId, JobId] = {start: start for start in starts}
    left = [*starts]
    while left and end not in came_from:
        job = context.jobs.live.get(number := left.pop())
        for _, numbers in dependencies(job.spec) if job is not None else ():
            left += [each for each in numbers if each not in came_from]
            came_from |= {each: number for each in numbers if each not in came_from}
    if end not in came_from:
        return []
    way = [end]
    while came_from[way[0]] != way[0]:
        way.insert(0, came_from[way[0]])
    return way
