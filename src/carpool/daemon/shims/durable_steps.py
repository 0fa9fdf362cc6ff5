"""Steps that follow from a decision about a job, once the decision is on the disk: signals, and the next attempt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from carpool.core.model import Attempt, JobId, Reason
from carpool.daemon.jobs.files import read_exit, was_started
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.shims.job_ends import JobEnds
from carpool.daemon.shims.shim_table import ShimParts
from carpool.daemon.shims.supervisor import Processes
from carpool.daemon.system.errors import JournalFull
from carpool.daemon.system.log_limit import caused_by

log = logging.getLogger(__name__)
RETRY_S = 1.0
LOOK_S = 0.02
TEXT = "the machine restarted"


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
            log.error("the signal to job %d is recorded later: %s", job.id, error, extra=caused_by(job.owner))
            self._store.note_control(job)


class Retries:
    """Delays the process of the next attempt, which the core may place at once, until everything here is done.

    So a daemon that dies in between leaves one of two states: an attempt whose end is still to be judged, from the same
    files with the same result, or the next attempt, of which nothing has been started.
    """

    def __init__(self, processes: Processes, ends: JobEnds, store: JournalStore) -> None:
        self._processes = processes
        self._ends = ends
        self._store = store
        self._tasks: dict[JobId, asyncio.Task[None]] = {}

    def follow(self, job: JobRecord) -> None:
        """Start the work between two attempts.  ``job``: the job as it is before its next attempt."""
        self._processes.hold(job.id)
        task = asyncio.get_running_loop().create_task(self._between(job), name=f"retry-{job.id}")
        self._tasks[job.id] = task

    def close(self) -> None:
        """Stop waiting; the next daemon goes on."""
        for task in self._tasks.values():
            task.cancel()

    async def _between(self, job: JobRecord) -> None:
        await record_failure(self._store, job)
        # Polls the lock: the ending shim need not be our child, and the job's user may hold the lock as well.
        while self._ends.is_live(job) and self._ends.lives(job.id):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        del self._tasks[job.id]
        self._processes.release(job.id)


async def record_failure(store: JournalStore, job: JobRecord) -> None:
    """Wait until the job's last attempt is on the disk.  ``job``: the job as it is before the next attempt."""
    while True:
        try:
            await store.failed(job)
        except JournalFull as error:
            log.error("attempt %d of job %d waits: %s", job.attempt, job.id, error, extra=caused_by(job.owner))
            await asyncio.sleep(RETRY_S)
        else:
            return


class MachineRestart:
    """Settles interrupted jobs.  ``happened``: the machine has restarted since an earlier daemon ran."""

    def __init__(self, parts: ShimParts, store: JournalStore, ends: JobEnds, *, happened: bool) -> None:
        self._home = parts.home
        self._privileges = parts.privileges
        self._jobs = parts.jobs
        self._store = store
        self._ends = ends
        self._happened = happened

    async def settle(self) -> None:
        """End the attempts that had begun and not ended, before the core is told of the jobs."""
        for job in list(self._jobs.live.values()):
            if not (self._happened and self._was_interrupted(job)):
                continue
            if job.spec.requeue and job.startable and not job.cancelled:
                again = job.again(Attempt(TEXT, job.device), job.estimate, None, None)
                await record_failure(self._store, again)
                self._jobs.live[job.id] = again
            else:
                job.fault = Reason("machine_restarted", TEXT)

    def _was_interrupted(self, job: JobRecord) -> bool:
        files, privileges = self._home.job(job.id, job.attempt), self._privileges
        begun = was_started(privileges, files, job.owner)
        return begun and read_exit(privileges, files, job.owner) is None and not self._ends.lives(job.id)
