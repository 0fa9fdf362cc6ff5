"""Signals that follow from a decision about a job: no job hears of what the next daemon would not know of."""

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
    """Sends signals, in order, when what was recorded of their job before them is on the disk."""

    def __init__(self, jobs: JobTable, store: JournalStore, send: Callable[[JobRecord, int], None]) -> None:
        self._jobs = jobs
        self._store = store
        self._send = send
        self._last: dict[JobId, asyncio.Future[None]] = {}  # what is being written

    def record(self, job: JobRecord) -> None:
        """What is known in `JobRecord.control`, before any signal that follows."""
        done = self._last[job.id] = self._store.control(job)
        done.add_done_callback(partial(self._recorded, job))

    def send(self, job: JobRecord, number: int) -> None:
        """If the attempt is not over by then."""
        last = self._last.get(job.id)
        if last is None:
            self._send(job, number)
        else:
            last.add_done_callback(lambda done: self._unless_over(job, number))

    def _unless_over(self, job: JobRecord, number: int) -> None:
        if self._jobs.live.get(job.id) is job:
            self._send(job, number)

    def _recorded(self, job: JobRecord, done: asyncio.Future[None]) -> None:
        """On a full disk the signal goes out all the same: the job that fills the disk has to end at its limit."""
        if self._last.get(job.id) is done:
            del self._last[job.id]
        error = done.exception()
        if error is not None and self._jobs.live.get(job.id) is job:
            log.error("that job %d is signalled is recorded later: %s", job.id, error, extra=caused_by(job.owner))
            self._store.note_control(job)
