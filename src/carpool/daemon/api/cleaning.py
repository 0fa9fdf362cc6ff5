"""Removing ended jobs before their time."""

from __future__ import annotations

import asyncio

from aiohttp import web

from carpool.daemon.api.context import CONTEXT, Context, caller, require_owner, viewer
from carpool.daemon.api.middleware import json_response, read_body
from carpool.daemon.jobs.table import EndedJob
from carpool.daemon.system.errors import JournalFull, RequestError
from carpool.protocol.api import CleanRequest, CleanResponse

MOST = 1000  # jobs of one request


async def clean(request: web.Request) -> web.Response:
    """Their rows, attempts and directories with their logs; of the caller's own jobs, for administrators of anybody's.

    All of the jobs have to have ended, else none is removed.  In ``kept`` are others' jobs and unknown ones (an error
    where there is nothing else), those that others wait for, the newest one and those that have just ended.  Durable
    before it is answered.
    """
    context = request.app[CONTEXT]
    wanted = (await read_body(request, CleanRequest)).jobs
    if len(wanted) > MOST:
        raise RequestError(400, "too_many_jobs", f"{len(wanted)} jobs at once", f"remove {MOST} at a time")
    removed = set(await _removed(context, _selected(context, request, wanted)))
    numbers = dict.fromkeys(wanted)
    return json_response(CleanResponse(sorted(removed), [number for number in numbers if number not in removed]))


async def _removed(context: Context, jobs: list[EndedJob]) -> list[int]:
    """Raises RequestError 507."""
    try:
        return await asyncio.shield(context.remove_ended(jobs))
    except JournalFull as error:
        text = f"{error.info.message}; logs of some of these jobs are deleted already, and the jobs are still listed"
        raise RequestError(507, error.info.code, text, "make room, then repeat the request") from None


def _selected(context: Context, request: web.Request, wanted: list[int]) -> list[EndedJob]:
    """Raises RequestError 409 for one that has not ended, 404 and 403 where there is none that could be removed."""
    found, refused = list[EndedJob](), list[RequestError]()
    for number in dict.fromkeys(wanted):
        try:
            found.append(_ended(context, request, number))
        except RequestError as error:
            if error.status == 409:
                raise
            refused.append(error)
    if refused and not found:
        raise refused[0]
    return found


def _ended(context: Context, request: web.Request, number: int) -> EndedJob:
    """Raises RequestError 404, 403 and 409."""
    job = context.jobs.live.get(number) or context.jobs.ended.get(number)
    if job is None or not viewer(context, caller(request)).knows(job.owner):
        raise RequestError(404, "unknown_job", f"there is no job {number}", "carpool ls --all lists them")
    require_owner(context, request, job, "remove it")
    if not isinstance(job, EndedJob):
        raise RequestError(
            409, "not_ended", f"job {job.number} has not ended", f"end the job first: carpool cancel {job.number}"
        )
    return job
