"""Jobs that the daemon waits for: those asked for something, and after a restart those that have to come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.seat import Yield

LOOK_S = 0.1  # between two looks of the watchdog


@dataclass(slots=True)
class Revocation:
    """A turn that the daemon has asked back.  Kept by the daemon, because a job may write anything into its seat."""

    how: Yield
    forced: bool = False  # at a boundary, or at once if none comes; the core does not ask again
    looks: int = 0  # looks of the watchdog since the request

    def looked(self, times: int = 1) -> int:
        """Count looks of the watchdog, and return how many there have been."""
        self.looks += times
        return self.looks

    def carried(self, how: Yield, since_s: float = 0.0) -> int:
        """Return the looks that count when the turn is asked back again, ``since_s`` after this request was withdrawn.

        Each look's time without a request cancels one: a job that does not answer gains nothing from requests that come
        and go because of other jobs, and one that was asked for a moment long ago has its whole time.
        """
        if self.how is Yield.BOUNDARY and how is not Yield.BOUNDARY:
            return 0  # until now the job was allowed to go on to its boundary
        return max(0, self.looks - round(since_s / LOOK_S))


class Watchlist:
    """The list into which code that asks a job for something enters the job, for `carpool.daemon.sigstop.watchdog`.

    So the modules that ask do not depend on the watchdog, which depends on them.
    """

    def __init__(self) -> None:
        self._asked: asyncio.Queue[JobRecord] = asyncio.Queue()
        self._busy: set[JobId] = set()
        self._revoked: dict[JobId, Revocation] = {}
        self._withdrawn: dict[JobId, tuple[Revocation, float]] = {}  # and when it was withdrawn, while that counts

    def watch(self, job: JobRecord) -> None:
        """Enter a job that has been asked for something.  Entering it again does no harm."""
        self._asked.put_nowait(job)

    def revoke(self, job: JobRecord, how: Yield, *, forced: bool = False) -> None:
        """Record that the job's turn has been asked back.  A repeated request, also after `withdraw`, adds no time."""
        present = self._revoked.get(job.id)
        if present is None or present.how is not how:
            looks = self._withdrawn_looks(job, how) if present is None else present.carried(how)
            self._revoked[job.id] = Revocation(how, forced, looks)
        self.watch(job)

    def withdraw(self, job: JobRecord) -> None:
        """Withdraw the request: the job may keep its turn for now."""
        present, now = self._revoked.pop(job.id, None), monotonic()
        self._withdrawn = {id_: each for id_, each in self._withdrawn.items() if _counts(*each, now)}
        if present is not None and present.looks:
            self._withdrawn[job.id] = present, now

    def _withdrawn_looks(self, job: JobRecord, how: Yield) -> int:
        revocation, at = self._withdrawn.pop(job.id, (None, 0.0))
        return 0 if revocation is None else revocation.carried(how, monotonic() - at)

    def revocation(self, job: JobRecord) -> Revocation | None:
        """Return the request for the job's turn that is open; None: none."""
        return self._revoked.get(job.id)

    def settle(self, job: JobRecord) -> None:
        """Record that the job has given its turn back, or has paused."""
        self._revoked.pop(job.id, None)
        self._withdrawn.pop(job.id, None)

    async def next(self) -> JobRecord:
        """Wait for the next job that has been entered, and return it."""
        return await self._asked.get()

    def mark_busy(self, job: JobRecord) -> None:
        """Record that the job's shim cannot move the job's memory, because the job itself is just moving it."""
        self._busy.add(job.id)

    def is_busy(self, job: JobRecord) -> bool:
        """Return whether the shim has reported the job as busy, and the job has not been seen to run since."""
        return job.id in self._busy

    def clear_busy(self, job: JobRecord) -> None:
        """Record that the job runs."""
        self._busy.discard(job.id)

    def forget(self, job: JobRecord) -> None:
        """Forget a job that owes nothing any more or has ended."""
        self.clear_busy(job)
        self._revoked.pop(job.id, None)


def _counts(revocation: Revocation, at: float, now: float) -> bool:
    """Return whether a request withdrawn at ``at`` would shorten the job's time if it were made again at ``now``."""
    return revocation.carried(revocation.how, now - at) > 0


@dataclass(eq=False, slots=True)
class Recovery:
    """Whether a restarted daemon is still taking over the jobs of its predecessor.

    While it is ``active``, the core knows no job, no channel is read, and messages of shims are kept for later.
    ``missing``: the jobs whose shims lived at the last check and have not registered with this daemon.
    """

    active: bool = False
    missing: set[JobId] = field(default_factory=set)

    def begin(self, missing: set[JobId]) -> None:
        """Begin the recovery."""
        self.active, self.missing = True, missing

    def look_again(self, lives: Callable[[JobId], bool]) -> None:
        """Stop waiting for shims that have ended meanwhile."""
        self.missing = set(filter(lives, self.missing))

    def end(self) -> None:
        """End the recovery: the core knows all jobs."""
        self.active = False
