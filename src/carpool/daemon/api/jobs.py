"""Listing, showing, waiting for and cancelling jobs."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web

from carpool.core.events import CancelRequested
from carpool.core.model import JobPhase
from carpool.daemon.api.context import CONTEXT, Context, caller, find_job, require_owner, viewer
from carpool.daemon.api.kept_rows import ROWS, KeptRows
from carpool.daemon.api.middleware import json_response, list_response, number_parameter
from carpool.daemon.api.request_queue import PLACE
from carpool.daemon.api.visibility import Viewer, visible_job, visible_placement
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import EndedJob, JobRecord
from carpool.daemon.journal.notices import notices_of_job
from carpool.daemon.journal.records import read_placement
from carpool.daemon.system.cooperative import in_slices
from carpool.daemon.system.errors import JournalFull, RequestError
from carpool.protocol.api import JobInfo
from carpool.protocol.notices import NoticeList

LONGEST_WAIT_S = 3600.0


def describe(context: Context, job: JobRecord | EndedJob, viewer: Viewer) -> object:
    """Return a `JobInfo` as the viewer sees it, or its stored JSON for an ended job that the viewer sees whole."""
    if isinstance(job, JobRecord):
        return visible_job(viewer, job_info(job, context.machine.explain(job.id)))
    if viewer.shows_all_of(job.owner):
        return job.info
    return visible_job(viewer, msgspec.json.decode(job.info, type=JobInfo))


async def list_jobs(request: web.Request) -> web.StreamResponse:
    """List jobs in order of ids; ``phase`` selects (repeatable, or separated by commas), ``limit`` keeps the newest.

    ``before``: only jobs with smaller numbers, for lists that are read in pages; ``array``: only the elements of one
    array; for an element that was tried again, its newest job.
    """
    context = request.app[CONTEXT]
    phases = _phases(request)
    limit, before = number_parameter(request, "limit", None, 1e9), number_parameter(request, "before", None, 2**62)
    first_hidden = math.inf if before is None else before
    array = number_parameter(request, "array", None, 2**62)
    sight = viewer(context, caller(request))
    ended = context.jobs.ended if JobPhase.ENDED in phases else {}
    live = (number for number, job in context.jobs.live.items() if job.phase in phases)
    numbers = sorted(number for number in (*ended, *live) if number < first_hidden)
    if array is not None:
        present = set(numbers)
        numbers = [number for number in context.jobs.elements(int(array)) if number in present]
    visible = (number for number in reversed(numbers) if sight.knows(context.jobs.owner(number)))
    newest = [*islice(visible, None if limit is None else int(limit))]
    rows, jobs, place = request.app[ROWS], context.jobs, request[PLACE]
    async with place.slices():
        found = await in_slices(
            reversed(newest), lambda n: _row(rows, ended.get(n) or jobs.live.get(n), sight), place.give_way
        )
    return await list_response(request, [row for row in found if row is not None], context.notice)


def _row(rows: KeptRows, job: JobRecord | EndedJob | None, viewer: Viewer) -> bytes | None:
    """Return the encoded row of a job; None: the job has ended, or was removed, since the list was begun."""
    return None if job is None else rows.row(job, viewer)


def _phases(request: web.Request) -> set[JobPhase]:
    names = [name for text in request.query.getall("phase", []) for name in text.split(",") if name]
    try:
        return {JobPhase(name) for name in names} or set(JobPhase)
    except ValueError as error:
        known = ", ".join(phase.value for phase in JobPhase)
        raise RequestError(400, "bad_parameter", f"phase: {error}", f"known phases: {known}") from None


async def show_job(request: web.Request) -> web.Response:
    """Return one job, live or ended; for a job that waits, with the reason."""
    context = request.app[CONTEXT]
    return json_response(describe(context, find_job(context, request), viewer(context, caller(request))))


async def show_placement(request: web.Request) -> web.Response:
    """Return the devices as they look to a waiting job, or as they were when it was placed; 404 if unknown."""
    context = request.app[CONTEXT]
    job, sight = find_job(context, request), viewer(context, caller(request))
    if (
        isinstance(job, JobRecord)
        and job.phase is JobPhase.QUEUED
        and (now := context.machine.placement(job.id)) is not None
    ):
        return json_response(_named(context, visible_placement(sight, job.owner, msgspec.to_builtins(now))))
    await context.store.flushed()
    made = await asyncio.to_thread(read_placement, context.home.journal, job.id)
    if made is None:
        text = f"job {job.number} has not been placed yet"
        raise RequestError(404, "no_placement", text, f"carpool show {job.number} shows its state")
    return json_response(_named(context, visible_placement(sight, job.owner, msgspec.json.decode(made))))


def _named(context: Context, placement: dict[str, Any]) -> dict[str, Any]:
    called = {job: context.jobs.called(job) for row in placement["rows"] for job in row["jobs"]}
    return placement | {"elements": {job: name for job, name in called.items() if name != str(job)}}


async def show_notices(request: web.Request) -> web.Response:
    """List the notices of the job's starts and its end, sent, owed and failed; for the job's owner."""
    context = request.app[CONTEXT]
    job = find_job(context, request)
    require_owner(context, request, job, "see its notices")
    await context.store.flushed()
    return json_response(NoticeList(await asyncio.to_thread(notices_of_job, context.home.journal, job.id)))


async def wait_job(request: web.Request) -> web.Response:
    """Wait until the job has ended or ``timeout_s`` is over, and return the job as it is then (a long poll).

    The next daemon knows of an end that was answered, and of all events before that end.
    """
    context = request.app[CONTEXT]
    job = find_job(context, request)
    timeout_s = number_parameter(request, "timeout_s", None, LONGEST_WAIT_S)
    async with request[PLACE].aside(request):
        over = await context.jobs.wait_end(job.id, timeout_s)
    if over:
        with suppress(JournalFull):  # it has ended all the same, and is recorded when there is room
            await context.feed.written()
    return await show_job(request)


async def cancel_job(request: web.Request) -> web.Response:
    """Cancel a job.  Durable before the answer.  A job that has ended is refused (409)."""
    context = request.app[CONTEXT]
    job = find_job(context, request)
    require_owner(context, request, job, "cancel it")
    if isinstance(job, EndedJob):
        text = f"job {job.number} has already ended: {job.outcome.words}"
        raise RequestError(409, "already_ended", text, f"carpool show {job.number} says more")
    if not job.cancelled:
        await context.store.cancelled(job)
        if job.id in context.jobs.live and not job.cancelled:  # several may have asked at once
            job.mark_cancelled()
            context.post(CancelRequested(job.id))
    return await show_job(request)
