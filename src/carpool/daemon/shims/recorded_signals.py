"""Signals that follow from a decision about a job: the decision is recorded first, so that the next daemon knows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.system.log_limit import caused_by

log = logging.getLogger(__name__)


class RecordedSignals:
    """Sends signals, in order, once earlier records about their job are on the disk."""

    def __init__(self, jobs: JobTable, store: JournalStore, send: Callable[[JobRecord, int], None]) -> None:
        self._jobs = jobs
        self._store = store
        self._send = send
        self._last: dict[JobId, asyncio.Future[None]] = {}  # records being written

    def record(self, job: JobRecord) -> None:
        """Record `JobRecord.control` before any signal that follows."""
        done = self._last[job.id] = self._store.control(job)
        done.add_done_callback(partial(self._recorded, job))

    def send(self, job: JobRecord, number: int) -> None:
        """Send a signal after the records, if the attempt is not over by then."""
        last = self._last.get(job.id)
        if last is None:
            self._send(job, number)
        else:
            last.add_done_callback(lambda done: self._unless_over(job, number))

    def _unless_over(self, job: JobRecord, number: int) -> None:
        if self._jobs.live.get(job.id) is job:
            self._send(job, number)

    def _recorded(self, job: JobRecord, done: asyncio.Future[None]) -> None:
        """Handle the end of a write.

        On a full disk the signal is sent all the same: the job that fills the disk has to end at its limit.
        """
        if self._last.get(job.id) is done:
            del self._last[job.id]
        error = done.exception()
        if error is not None and self._jobs.live.get(job.id) is job:
            log.error("that job %d is signalled is recorded later: %s", job.id, error, extra=caused_by(job.owner))
            self._store.note_control(job)
