"""A cache of encoded rows of job lists, for jobs that have not changed since.

The row of a waiting job is kept together with everything that the daemon knows of the job and with the reason for the
wait; the row of an ended job, as users other than its owner see it, by the job's number.  Rows of running jobs are not
kept: they change all the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

import msgspec
from aiohttp import web

from carpool.core.model import JobId, JobPhase, Reason
from carpool.daemon.api.visibility import Viewer, visible_job
from carpool.daemon.config.limits import Visibility
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import EndedJob, JobRecord
from carpool.protocol.api import JobInfo

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
