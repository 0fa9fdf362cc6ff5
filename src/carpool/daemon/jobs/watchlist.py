"""Jobs that have been asked for something, and may not answer because somebody has stopped them."""

from __future__ import annotations

import asyncio

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord


class Watchlist:
    """Whoever asks a job for something enters the job here; `carpool.daemon.stopped.watchdog` looks after it.

    So the parts that ask do not need the watchdog, which needs them.
    """

    def __init__(self) -> None:
        self._asked: asyncio.Queue[JobRecord] = asyncio.Queue()
        self._busy: set[JobId] = set()

    def watch(self, job: JobRecord) -> None:
        """The job has been asked for something.  Entering it again does no harm."""
        self._asked.put_nowait(job)

    async def next(self) -> JobRecord:
        """The next job that has been entered; waits for one."""
        return await self._asked.get()

    def mark_busy(self, job: JobRecord) -> None:
        """The job's shim cannot move the job's memory: the job itself is in the middle of moving it."""
        self._busy.add(job.id)

    def is_busy(self, job: JobRecord) -> bool:
        """Whether the shim has said so, and the job has not been seen to run since."""
        return job.id in self._busy

    def clear_busy(self, job: JobRecord) -> None:
        """The job runs, or owes nothing any more."""
        self._busy.discard(job.id)
