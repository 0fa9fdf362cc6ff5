"""Listing, showing, waiting for and cancelling jobs, and a cache of encoded rows of lists.

The row of a waiting job is kept together with everything that the daemon knows of the job and with the reason for the
wait; the row of an ended job, as users other than its owner see it, by the job's number.  Rows of running jobs are not
kept: they change all the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec
from aiohttp import web

from carpool.core.events import CancelRequested
from carpool.core.model import JobId, JobPhase, Reason
from carpool.daemon.api.call import LARGEST_NUMBER, ApiCall
from carpool.daemon.api.context import Context
from carpool.daemon.api.entrance import PLACE
from carpool.daemon.api.middleware import list_response
from carpool.daemon.api.visibility import Viewer, visible_job, visible_placement
from carpool.daemon.config.limits import Visibility
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import EndedJob, JobRecord
from carpool.daemon.journal.notices import notices_of_job
from carpool.daemon.journal.records import read_placement
from carpool.daemon.system.background import in_slices
from carpool.daemon.system.errors import JournalFull, RequestError
from carpool.protocol.api import JobInfo
from carpool.protocol.notices import NoticeList

LONGEST_WAIT_S = 3600.0
#: Rows of ended jobs that are kept, of about a kilobyte each.
MOST_ENDED = 20_000
#: Larger rows are encoded anew each time.
LARGEST_BYTES = 16 << 10
#: With more than `FEW` live jobs, a reason may be this old per live job: to find one reason takes 50 µs and more.
FEW = 100
REASON_AGE_S = 0.001

_everything = attrgetter(*(each.name for each in fields(JobRecord)))


@dataclass(slots=True)
class _Kept:
    """``about``: the job as it was.  ``seq``: the last event when ``waits``, the reason, was found."""

    about: tuple[Any, ...]
    waits: Reason | None
    seq: int
    found_s: float
    rows: dict[str, bytes] = field(default_factory=dict)  # by `_variant`


class KeptRows:
    """The cache.  ``explain``: why a job waits; ``last_seq``: the last recorded number; ``live``: all live jobs."""

    def __init__(
        self,
        explain: Callable[[JobId], Reason | None],
        last_seq: Callable[[], int],
        live: Callable[[], dict[JobId, JobRecord]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._explain, self._last_seq, self._live, self._clock = explain, last_seq, live, clock
        self._kept: dict[JobId, _Kept] = {}
        self._ended: dict[JobId, bytes] = {}

    def row(self, job: JobRecord | EndedJob, viewer: Viewer) -> bytes:
        """Return the JSON of a `JobInfo` as the viewer, who must know of the job, sees it."""
        if isinstance(job, EndedJob):
            return bytes(job.info) if viewer.shows_all_of(job.owner) else self._of_ended(job, viewer)
        if job.phase is not JobPhase.QUEUED or job.seated is not None:
            self._kept.pop(job.id, None)
            return _encoded(viewer, job_info(job, self._explain(job.id)))
        return self._of_waiting(job, viewer)

    def _of_ended(self, job: EndedJob, viewer: Viewer) -> bytes:
        row = self._ended.get(job.id)
        if row is None:
            row = _encoded(viewer, msgspec.json.decode(job.info, type=JobInfo))
            if len(self._ended) >= MOST_ENDED:
                del self._ended[next(iter(self._ended))]
            self._ended[job.id] = row
        return row

    def _of_waiting(self, job: JobRecord, viewer: Viewer) -> bytes:
        kept = self._present(job)
        variant = _variant(viewer, job.owner)
        row = kept.rows.get(variant)
        if row is None:
            row = _encoded(viewer, job_info(job, kept.waits))
            if len(row) <= LARGEST_BYTES:
                kept.rows[variant] = row
        return row

    def _present(self, job: JobRecord) -> _Kept:
        """Return what is kept of a waiting job, without rows if the job has changed."""
        about, kept = _everything(job), self._kept.get(job.id)
        if kept is not None and kept.about == about and self._is_known(kept):
            return kept
        found_s, seq, waits = self._clock(), self._last_seq(), self._explain(job.id)
        if kept is not None and (kept.about, kept.waits) == (about, waits):
            kept.seq, kept.found_s = seq, found_s
            return kept
        kept = self._kept[job.id] = _Kept(about, waits, seq, found_s)
        self._forget()
        return kept

    def _is_known(self, kept: _Kept) -> bool:
        """Whether the kept reason is still the same, or recent enough."""
        if kept.seq == self._last_seq():
            return True
        count = len(self._live())
        return count > FEW and self._clock() - kept.found_s < count * REASON_AGE_S

    def _forget(self) -> None:
        """Drop the entries of jobs that have ended."""
        live = self._live()
        if len(self._kept) > 2 * len(live) + FEW:
            self._kept = {number: kept for number, kept in self._kept.items() if number in live}


ROWS: web.AppKey[KeptRows] = web.AppKey("rows", KeptRows)


def _variant(viewer: Viewer, owner: int) -> str:
    """Return the name of the view that several viewers share: everything, one's own job, or another user's."""
    if viewer.sees is Visibility.ALL:
        return "whole"
    return f"own {viewer.sees.value}" if viewer.shows_all_of(owner) else "of another user"


def _encoded(viewer: Viewer, info: JobInfo) -> bytes:
    return msgspec.json.encode(visible_job(viewer, info))


def describe(context: Context, job: JobRecord | EndedJob, viewer: Viewer) -> object:
    """Return a `JobInfo` as the viewer sees it, or its stored JSON for an ended job that the viewer sees whole."""
    if isinstance(job, JobRecord):
        return visible_job(viewer, job_info(job, context.machine.explain(job.id)))
    if viewer.shows_all_of(job.owner):
        return job.info
    return visible_job(viewer, msgspec.json.decode(job.info, type=JobInfo))


async def list_jobs(call: ApiCall) -> object:
    """List jobs in order of ids; ``phase`` selects (repeatable, or separated by commas), ``limit`` keeps the newest.

    ``before``: only jobs with smaller numbers, for lists that are read in pages; ``array``: only the elements of one
    array; for an element that was tried again, its newest job.
    """
    context, jobs, sight, phases = call.context, call.context.jobs, call.sight, _phases(call)
    ended = jobs.ended if JobPhase.ENDED in phases else {}
    rows, place = call.request.app[ROWS], call.request[PLACE]

    def row(number: JobId) -> bytes | None:
        """Return the encoded row of a job; None: the job has ended, or was removed, since the list was begun."""
        job = ended.get(number) or jobs.live.get(number)
        return None if job is None else rows.row(job, sight)

    visible = (number for number in reversed(_listed(call, ended, phases)) if sight.knows(jobs.owner(number)))
    newest = [*islice(visible, call.number("limit", None, 1e9))]
    async with place.slices():
        found = await in_slices(reversed(newest), row, place.give_way)
    return await list_response(call.request, [each for each in found if each is not None], context.notice)


def _listed(call: ApiCall, ended: Iterable[JobId], phases: set[JobPhase]) -> list[JobId]:
    """Return the jobs to list, in order: those ``ended``, and live ones in the phases, as far as the query says."""
    jobs, before, array = call.context.jobs, call.number("before", LARGEST_NUMBER), call.number("array", None)
    live = (number for number, job in jobs.live.items() if job.phase in phases)
    numbers = sorted(number for number in (*ended, *live) if number < before)
    if array is None:
        return numbers
    present = set(numbers)
    return [number for number in jobs.elements(array) if number in present]


def _phases(call: ApiCall) -> set[JobPhase]:
    names = [name for text in call.request.query.getall("phase", []) for name in text.split(",") if name]
    try:
        return {JobPhase(name) for name in names} or set(JobPhase)
    except ValueError as error:
        known = ", ".join(phase.value for phase in JobPhase)
        raise RequestError(400, "bad_parameter", f"phase: {error}", f"known phases: {known}") from None


async def show_job(call: ApiCall) -> object:
    """Return one job, live or ended; for a job that waits, with the reason."""
    return describe(call.context, call.job(), call.sight)


async def show_placement(call: ApiCall) -> object:
    """Return the devices as they look to a waiting job, or as they were when it was placed; 404 if unknown."""
    context = call.context
    job, sight = call.job(), call.sight
    if (
        isinstance(job, JobRecord)
        and job.phase is JobPhase.QUEUED
        and (now := context.machine.placement(job.id)) is not None
    ):
        return _named(context, visible_placement(sight, job.owner, msgspec.to_builtins(now)))
    await context.store.flushed()
    made = await asyncio.to_thread(read_placement, context.home.journal, job.id)
    if made is None:
        text = f"job {job.number} has not been placed yet"
        raise RequestError(404, "no_placement", text, f"carpool show {job.number} shows its state")
    return _named(context, visible_placement(sight, job.owner, msgspec.json.decode(made)))


def _named(context: Context, placement: dict[str, Any]) -> dict[str, Any]:
    called = {job: context.jobs.called(job) for row in placement["rows"] for job in row["jobs"]}
    return placement | {"elements": {job: name for job, name in called.items() if name != str(job)}}


async def show_notices(call: ApiCall) -> object:
    """List the notices of the job's starts and its end, sent, owed and failed; for the job's owner."""
    context = call.context
    job = call.job("see its notices")
    await context.store.flushed()
    return NoticeList(await asyncio.to_thread(notices_of_job, context.home.journal, job.id))


async def wait_job(call: ApiCall) -> object:
    """Wait until the job has ended or ``timeout_s`` is over, and return the job as it is then (a long poll).

    The next daemon knows of an end that was answered, and of all events before that end.
    """
    context = call.context
    job = call.job()
    timeout_s = call.fraction("timeout_s", LONGEST_WAIT_S)
    async with call.aside():
        over = await context.jobs.wait_end(job.id, timeout_s)
    if over:
        with suppress(JournalFull):  # it has ended all the same, and is recorded when there is room
            await context.feed.written()
    return await show_job(call)


async def cancel_job(call: ApiCall) -> object:
    """Cancel a job.  Durable before the answer.  A job that has ended is refused (409)."""
    context = call.context
    job = call.job("cancel it")
    if isinstance(job, EndedJob):
        text = f"job {job.number} has already ended: {job.outcome.words}"
        raise RequestError(409, "already_ended", text, f"carpool show {job.number} says more")
    if not job.cancelled:
        await context.store.cancelled(job)
        if job.id in context.jobs.live and not job.cancelled:  # several may have asked at once
            job.mark_cancelled()
            context.post(CancelRequested(job.id))
    return await show_job(call)
