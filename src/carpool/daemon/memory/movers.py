"""Movers of a job's memory from its bank to its store: the job itself, its shim, or the daemon with the device agent.

All three move while the job has no turn, and may find that it got one meanwhile.  None of them changes the bank: until
`Mover.counts` has said that the store has everything, the job's memory is where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.memory.bank_holders import is_out
from carpool.daemon.memory.copies import Copied, StoreCopies
from carpool.daemon.seats.kept_fds import BANK, STORE
from carpool.protocol.seat import OffloadState


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The end of a mover: ``size`` bytes are in the store, or ``error``, as text for users.

    ``turns`` and ``took_us`` come from the daemon's copies: the number of the last turn that the job had given back
    before, and how long the copy took.
    """

    size: int = 0
    error: str | None = None
    turns: int = 0
    took_us: int = 0


class Mover(Protocol):
    """One of the three movers.  Its creator is told of the end, at any time from `begin` on, in the daemon's loop."""

    def begin(self, job: JobRecord) -> bool:
        """Move the content of the bank of a seated job.  Return False if this mover cannot do that at present."""
        ...

    def withdraw(self, job: JobRecord) -> None:
        """Withdraw the request; the end may still be reported."""
        ...

    def counts(self, job: JobRecord, moved: MoveResult) -> bool:
        """Return whether the move is valid; asked at its end, once it is certain that another job or none has the turn.

        True: the job has had no turn since, and its seat says that its memory is in its store.  False: the memory is in
        the bank, as before.
        """
        ...


Ended = Callable[[JobRecord, Mover, MoveResult], None]


class JobItself:
    """On host devices: the helper thread of the job's process (``src/native/store/offload.c``).

    The answer comes over the job's channel; the job has written its seat by then.
    """

    def __init__(self, watchlist: Watchlist) -> None:
        self._watchlist = watchlist

    def begin(self, job: JobRecord) -> bool:
        """Ask the job, which answers later."""
        job.attached.seat.set("offload", OffloadState.ASKED)
        job.attached.notify()
        self._watchlist.watch(job)
        return True

    def withdraw(self, job: JobRecord) -> None:
        """Withdraw the request, unless the job is to drop its store."""
        if job.attached.seat.get("offload") != OffloadState.DROP:
            job.attached.seat.set("offload", OffloadState.NO)

    def counts(self, job: JobRecord, moved: MoveResult) -> bool:
        """Return whether the job's seat says that the store has everything."""
        return is_out(job) and job.attached.seat.get("stored") >= moved.size


class Shims(Protocol):
    """The sessions with the shims (`carpool.daemon.shims.shim_table`)."""

    def take(self, job: JobId, bank: str, store: str) -> bool:
        """Ask the job's shim, by the names under which it keeps bank and store.  Return False if the shim cannot."""
        ...


class JobsShim:
    """For a job that has been asked and does not answer, because a user has stopped it.

    The shim checks by itself whether the request still stands, so that `JobItself.withdraw` withdraws this move as
    well.
    """

    def __init__(self, shims: Shims) -> None:
        self._shims = shims

    def begin(self, job: JobRecord) -> bool:
        """Ask the shim, if it can move the memory."""
        return self._shims.take(job.id, f"{BANK}:{job.device}:{job.bank}", f"{STORE}:{job.device}")

    def withdraw(self, job: JobRecord) -> None:
        """Do nothing: `JobItself.withdraw` withdraws this move as well."""

    def counts(self, job: JobRecord, moved: MoveResult) -> bool:
        """Write the result into the seat, unless the job has a turn: the store's state bytes say what to restore."""
        seat = job.attached.seat
        if seat.get("turn"):
            return False
        seat.set("stored", max(0, min(moved.size, os.fstat(job.attached.store_fd).st_size)))
        seat.set("offloaded", 1)
        return True


class DaemonsCopies:
    """For memory in extents: the daemon, with the device's agent.

    The job is asked only for memory that it has made, and moves first (``src/native/cuda/memory/handle_moves.c``).
    """

    def __init__(self, copies: StoreCopies, itself: JobItself, ended: Ended) -> None:
        self._copies = copies
        self._itself = itself
        self._ended = ended

    def begin(self, job: JobRecord) -> bool:
        """Copy the bank; a present copy ends first.  A job about to come back has everything in its store still."""
        turns = job.attached.seat.get("passed_seq")
        if self._copies.under_way(job):
            self._copies.afterwards(job, self._begin_anew)
        elif job.attached.seat.get("made"):
            self._itself.begin(job)  # begun anew after its answer
        elif is_out(job) or not job.attached.seat.get("p_used"):
            self._ended(job, self, MoveResult(turns=turns))
        else:
            self._copies.out(job, lambda job, copied: self._copied(job, turns, copied))
        return True

    def withdraw(self, job: JobRecord) -> None:
        """Ask the job no more; a copy that is not needed any more does no harm."""
        self._itself.withdraw(job)

    def counts(self, job: JobRecord, moved: MoveResult) -> bool:
        """Return whether the job has had no turn since; if so, write the result into the seat."""
        seat = job.attached.seat
        if seat.get("turn") or seat.get("passed_seq") != moved.turns:
            return False
        if not is_out(job):
            seat.set("stored", moved.size)
            seat.set("store_bytes", max(seat.get("store_bytes"), moved.size))
            seat.set("out_bytes", seat.get("out_bytes") + moved.size)
            seat.set("out_us", seat.get("out_us") + moved.took_us)
            seat.set("offloaded", 1)
        return True

    def _begin_anew(self, job: JobRecord) -> None:
        self.begin(job)

    def _copied(self, job: JobRecord, turns: int, copied: Copied) -> None:
        self._ended(job, self, MoveResult(copied.size, copied.error, turns, copied.took_us))
