"""Jobs that have been asked for something, and may not answer because somebody has stopped them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.seat import Yield


@dataclass(slots=True)
class Revocation:
    """A turn that the daemon has asked back.  Kept by the daemon: the job may write whatever it likes into its seat."""

    how: Yield
    forced: bool = False  # at a boundary, or at once if none comes: the core does not ask again
    looks: int = 0  # of the watchdog, since then

    def looked(self, times: int = 1) -> int:
        """Count looks; returns how many there have been."""
        self.looks += times
        return self.looks


class Watchlist:
    """Whoever asks a job for something enters the job here; `carpool.daemon.stopped.watchdog` looks after it.

    So the parts that ask do not need the watchdog, which needs them.
    """

    def __init__(self) -> None:
        self._asked: asyncio.Queue[JobRecord] = asyncio.Queue()
        self._busy: set[JobId] = set()
        self._revoked: dict[JobId, Revocation] = {}

    def watch(self, job: JobRecord) -> None:
        """The job has been asked for something.  Entering it again does no harm."""
        self._asked.put_nowait(job)

    def revoke(self, job: JobRecord, how: Yield, *, forced: bool = False) -> None:
        """The job's turn has been asked back.  Asking for the same again does not give it more time."""
        present = self._revoked.get(job.id)
        if present is None or present.how is not how:
            self._revoked[job.id] = Revocation(how, forced)
        self.watch(job)

    def revocation(self, job: JobRecord) -> Revocation | None:
        """What the job owes of its turn; None: nothing."""
        return self._revoked.get(job.id)

    def settle(self, job: JobRecord) -> None:
        """The job has let go, or has paused, or may keep its turn."""
        self._revoked.pop(job.id, None)

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
        """The job runs."""
        self._busy.discard(job.id)

    def forget(self, job: JobRecord) -> None:
        """The job owes nothing any more, or has ended."""
        self.clear_busy(job)
        self.settle(job)
