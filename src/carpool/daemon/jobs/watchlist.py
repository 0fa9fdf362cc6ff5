"""Jobs that have been asked for something, and may not answer because somebody has stopped them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.seat import Yield

LOOK_S = 0.1  # between two looks of the watchdog


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

    def carried(self, how: Yield, since_s: float = 0.0) -> int:
        """Looks that count when the turn is asked back again, ``since_s`` after this was withdrawn.

        Each look without is one less: a job that does not answer gains nothing from requests that others make come and
        go, and one that was asked for a moment long ago has its whole time.
        """
        if self.how is Yield.BOUNDARY and how is not Yield.BOUNDARY:
            return 0  # until now it might have gone on to its boundary
        return max(0, self.looks - round(since_s / LOOK_S))


class Watchlist:
    """Whoever asks a job for something enters the job here; `carpool.daemon.stopped.watchdog` looks after it.

    So the parts that ask do not need the watchdog, which needs them.
    """

    def __init__(self) -> None:
        self._asked: asyncio.Queue[JobRecord] = asyncio.Queue()
        self._busy: set[JobId] = set()
        self._revoked: dict[JobId, Revocation] = {}
        self._withdrawn: dict[JobId, tuple[Revocation, float]] = {}  # and when, as long as that counts

    def watch(self, job: JobRecord) -> None:
        """The job has been asked for something.  Entering it again does no harm."""
        self._asked.put_nowait(job)

    def revoke(self, job: JobRecord, how: Yield, *, forced: bool = False) -> None:
        """The job's turn has been asked back.  Asking again, also after a `withdraw`, does not give it more time."""
        present = self._revoked.get(job.id)
        if present is None or present.how is not how:
            looks = self._withdrawn_looks(job, how) if present is None else present.carried(how)
            self._revoked[job.id] = Revocation(how, forced, looks)
        self.watch(job)

    def withdraw(self, job: JobRecord) -> None:
        """The job may keep its turn, as far as anybody knows now."""
        present, now = self._revoked.pop(job.id, None), monotonic()
        self._withdrawn = {id_: each for id_, each in self._withdrawn.items() if _counts(*each, now)}
        if present is not None and present.looks:
            self._withdrawn[job.id] = present, now

    def _withdrawn_looks(self, job: JobRecord, how: Yield) -> int:
        revocation, at = self._withdrawn.pop(job.id, (None, 0.0))
        return 0 if revocation is None else revocation.carried(how, monotonic() - at)

    def revocation(self, job: JobRecord) -> Revocation | None:
        """What the job owes of its turn; None: nothing."""
        return self._revoked.get(job.id)

    def settle(self, job: JobRecord) -> None:
        """The job has let go, or has paused."""
        self._revoked.pop(job.id, None)
        self._withdrawn.pop(job.id, None)

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
        self._revoked.pop(job.id, None)


def _counts(revocation: Revocation, at: float, now: float) -> bool:
    """Whether what was withdrawn then would give a job less time, if it were asked now."""
    return revocation.carried(revocation.how, now - at) > 0
