"""Answers that are streams: logs and events."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from aiohttp import web

from carpool.core.model import JobId
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.context import Context
from carpool.daemon.api.entrance import PLACE
from carpool.daemon.api.visibility import Viewer, visible_entry
from carpool.daemon.jobs.files import kept_from, next_piece
from carpool.daemon.jobs.table import EndedJob, JobRecord
from carpool.daemon.system.background import Slice
from carpool.daemon.system.errors import RequestError
from carpool.protocol.api import LOG_OFFSET_HEADER

POLL_S = 0.1
MOST_EVENTS = 10_000  # in one answer that is collected before it is sent
AT_ONCE = 64 << 10  # bytes of past events in one write


async def logs(call: ApiCall) -> object:
    """Stream the job's log from ``offset`` on; with ``follow`` until the job has ended and all has been sent.

    A log has a limit; the header ``Carpool-Log-Offset`` says where the answer begins: after ``offset`` if that part is
    deleted.
    """
    context = call.context
    job = call.job("read its log")
    offset = call.number("offset", 0)
    follow = call.flag("follow")
    attempt = _attempt(call, job)
    joined = job.joined if isinstance(job, EndedJob) else job.spec.joined
    if joined:
        text = f"job {job.number} has joined: its output goes where the program that started it sends it"
        raise RequestError(404, "no_log", text, f"carpool show {job.number} has its process, directory and command")
    if isinstance(job, JobRecord) and job.spec.foreground:
        raise RequestError(404, "no_log", f"job {job.number} writes to its own terminal")
    begin = str(_begin(context, job, attempt, offset))
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream", LOG_OFFSET_HEADER: begin})
    await response.prepare(call.request)
    pieces = _log_pieces(call, job, attempt, offset, follow)
    async with aclosing(pieces):
        async for piece in pieces:
            await _write(call, response, piece)
    await response.write_eof()
    return response


async def _write(call: ApiCall, response: web.StreamResponse, piece: bytes) -> None:
    """Write a piece; the request is not in work while its client takes the piece."""
    async with call.aside():
        await response.write(piece)


def _attempt(call: ApiCall, job: JobRecord | EndedJob) -> int:
    """Return the attempt that is asked for, or else the latest that has begun.  Raises RequestError 404."""
    latest = job.attempt
    asked = call.number("attempt", None, 2**31)
    if asked is None:
        waits = isinstance(job, JobRecord) and job.past and job.started_us is None
        return latest - 1 if waits else latest
    if not 1 <= asked <= latest:
        raise RequestError(
            404, "unknown_attempt", f"job {job.number} has no attempt {asked}", f"the latest is {latest}"
        )
    return asked


def _begin(context: Context, job: JobRecord | EndedJob, attempt: int, offset: int) -> int:
    fd = _open_log(context, job, attempt)
    if fd is None:
        return offset
    try:
        return kept_from(fd, offset)
    finally:
        os.close(fd)


async def _log_pieces(
    call: ApiCall, job: JobRecord | EndedJob, attempt: int, offset: int, follow: bool
) -> AsyncGenerator[bytes, None]:
    context, fd = call.context, None
    try:
        while True:
            # Asked before reading: what a job wrote before it ended is then certain to be read.
            over = _over(context, job.id, attempt) or context.stopping.is_set()
            if fd is None:
                fd = _open_log(context, job, attempt)
            while fd is not None and (piece := next_piece(fd, offset))[1]:
                offset = piece[0] + len(piece[1])
                yield piece[1]
            if over or not follow:
                return
            async with call.aside():
                await context.jobs.wait_end(job.id, POLL_S)
    finally:
        if fd is not None:
            os.close(fd)


def _over(context: Context, number: JobId, attempt: int) -> bool:
    job = context.jobs.live.get(number)
    return job is None or job.attempt > attempt


def _open_log(context: Context, job: JobRecord | EndedJob, attempt: int) -> int | None:
    """Open the log; None while the job has not written anything.  Raises RequestError 403."""
    try:
        return context.privileges.open_owned(context.home.job(job.id, attempt).log, job.owner)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RequestError(403, "bad_log", f"the log of job {job.number} cannot be read: {error}") from None


async def events(call: ApiCall) -> object:
    """Stream the events that the caller may see, in order, as newline-delimited `EventInfo`.

    Events after number ``since``, with ``follow`` until the daemon stops; or the last ``limit`` events before
    ``before``.
    """
    sight = call.sight
    since = call.number("since", 0)
    before = call.number("before", 2**62)
    limit = call.number("limit", None, MOST_EVENTS)
    follow = call.flag("follow")
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(call.request)
    if limit is not None:
        await _write(call, response, await _latest(call, sight, before, limit))
    else:
        async for lines in _lines(call, sight, since, follow):
            await _write(call, response, lines)
    await response.write_eof()
    return response


async def _lines(call: ApiCall, sight: Viewer, since: int, follow: bool) -> AsyncIterator[bytes]:
    """Yield lines, many at once: one write for each of a million lines would take longer than everything else."""
    gathered, place, present = bytearray(), call.request[PLACE], Slice()
    async for page in call.context.feed.pages(since, follow, call.aside):
        for entry in page:
            if (visible := visible_entry(sight, entry)) is not None:
                gathered += visible.line()
            if present.over:
                await place.give_way()
                present.begin()
            if len(gathered) >= AT_ONCE:
                yield bytes(gathered)
                gathered.clear()
        if follow and gathered:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


async def _latest(call: ApiCall, sight: Viewer, before: int, limit: int) -> bytes:
    """Return the last ``limit`` events that the caller may see, in order."""
    found: list[bytes] = []
    entries, place = call.context.feed.backwards(before), call.request[PLACE]
    async with place.slices(), aclosing(entries):
        present = Slice()
        while len(found) < limit and (entry := await anext(entries, None)) is not None:
            if (visible := visible_entry(sight, entry)) is not None:
                found.append(visible.line())
            if present.over:
                await place.give_way()
                present.begin()
    return b"".join(reversed(found))
