"""Removing ended jobs before the limits in `limits.toml` would remove them."""

from __future__ import annotations

import asyncio

from aiohttp import web

from carpool.daemon.api.context import CONTEXT, Context, caller, require_owner, viewer
from carpool.daemon.api.middleware import json_response, read_body
from carpool.daemon.hooks.retention import Retention
from carpool.daemon.jobs.table import EndedJob
from carpool.daemon.system.errors import JournalFull, RequestError
from carpool.protocol.api import CleanRequest, CleanResponse

MOST = 1000  # jobs of one request


async def clean(request: web.Request) -> web.Response:
    """Remove ended jobs with rows, attempts, directories and logs: the caller's own; for administrators, any user's.

    All of the jobs must have ended; otherwise none is removed.  ``kept`` lists jobs of other users and unknown jobs (an
    error if the request names no other jobs), jobs that other jobs wait for, the newest job, and jobs that have just
    ended.  The removal is durable before the answer.
    """
    context = request.app[CONTEXT]
    wanted = (await read_body(request, CleanRequest)).jobs
    if len(wanted) > MOST:
        raise RequestError(400, "too_many_jobs", f"{len(wanted)} jobs at once", f"remove {MOST} at a time")
    removed = set(await _removed(context, _selected(context, request, wanted)))
    numbers = dict.fromkeys(wanted)
    return json_response(CleanResponse(sorted(removed), [number for number in numbers if number not in removed]))


async def _removed(context: Context, jobs: list[EndedJob]) -> list[int]:
    """Remove jobs for good, and return the numbers of the removed ones.  Raises RequestError 507."""
    try:
        return await asyncio.shield(context.hooks.of(Retention).remove(jobs))
    except JournalFull as error:
        text = f"{error.info.message}; logs of some of these jobs are deleted already, and the jobs are still listed"
        raise RequestError(507, error.info.code, text, "make room, then repeat the request") from None


def _selected(context: Context, request: web.Request, wanted: list[int]) -> list[EndedJob]:
    """Return the jobs that the caller may remove.  Raises RequestError 409 for a job that has not ended.

    Raises RequestError 404 or 403 if none of the jobs can be removed.
    """
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
    """Return the ended job with this number, if the caller may remove it.  Raises RequestError 404, 403 and 409."""
    job = context.jobs.live.get(number) or context.jobs.ended.get(number)
    if job is None or not viewer(context, caller(request)).knows(job.owner):
        raise RequestError(404, "unknown_job", f"there is no job {number}", "carpool ls --all lists them")
    require_owner(context, request, job, "remove it")
    if not isinstance(job, EndedJob):
        raise RequestError(
            409, "not_ended", f"job {job.number} has not ended", f"end the job first: carpool cancel {job.number}"
        )
    return job
