"""Removing ended jobs before their time."""

from __future__ import annotations

import asyncio

from aiohttp import web

from carpool.daemon.api.context import CONTEXT, Context, caller, require_owner, viewer
from carpool.daemon.api.middleware import json_response, read_body
from carpool.daemon.jobs.table import EndedJob
from carpool.daemon.system.errors import RequestError
from carpool.protocol.api import CleanRequest, CleanResponse

MOST = 1000  # jobs of one request


async def clean(request: web.Request) -> web.Response:
    """Their rows, attempts and directories with their logs; of the caller's own jobs, for administrators of anybody's.

    All of the jobs have to have ended, else none is removed.  Jobs that others wait for, the newest one and those that
    have just ended stay, and are in ``kept``.  Durable before it is answered.
    """
    context = request.app[CONTEXT]
    wanted = (await read_body(request, CleanRequest)).jobs
    if len(wanted) > MOST:
        raise RequestError(400, "too_many_jobs", f"{len(wanted)} jobs at once", f"remove {MOST} at a time")
    jobs = [_ended(context, request, number) for number in dict.fromkeys(wanted)]
    removed = await asyncio.shield(context.remove_ended(jobs))
    return json_response(CleanResponse(removed, [job.id for job in jobs if job.id not in set(removed)]))


def _ended(context: Context, request: web.Request, number: int) -> EndedJob:
    """Raises RequestError 404, 403 and 409."""
    job = context.jobs.live.get(number) or context.jobs.ended.get(number)
    if job is None or not viewer(context, caller(request)).knows(job.owner):
        raise RequestError(404, "unknown_job", f"there is no job {number}", "carpool ls --all lists them")
    require_owner(context, request, job, "remove it")
    if not isinstance(job, EndedJob):
        raise RequestError(
            409, "not_ended", f"job {number} has not ended", f"end the job first: carpool cancel {number}"
        )
    return job
