"""Moving jobs' memory out of their banks: requests or copies, and their results.

The answer comes from the job, or from its shim if the job is stopped; the first one counts.  Until then the daemon
gives the job no turn, so that an answer always describes the present state.  (The core grants none either, except after
a restart, when it cannot know that an earlier daemon has asked.)  Only a predecessor that had read the job's name
before can still hand the job a turn: while the lane's holder is in the middle of handing over, nothing is decided.

Memory that comes in extents is copied by the daemon while the job has no turn, after the job has moved what it has made
itself.  If the job gets a turn meanwhile, its bank has everything, and the copy is discarded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Protocol

from carpool.core.events import Event, Offloaded, OffloadFailed, Sampled
from carpool.core.model import JobId, Memory
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.memory.bank_holders import is_out
from carpool.daemon.memory.copies import StoreCopies
from carpool.daemon.memory.movers import DaemonsCopies, JobItself, JobsShim, Mover, MoveResult, Shims
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.record import usage_of
from carpool.daemon.seats.turns import Turns
from carpool.daemon.system.clock import monotonic_us
from carpool.protocol.seat import OffloadState, Packet
from carpool.protocol.session import BUSY, WITHDRAWN

_LARGEST_ERROR = 4095
RECHECK_S = 0.002


class Grants(Protocol):
    """The jobs' grants (`carpool.daemon.memory.grants`)."""

    def again(self, job: JobRecord) -> None:
        """Try the job's grant again, after something has changed for the job."""
        ...


class Offloads:
    """Asks for offloads.  ``watchlist`` gets jobs that may not answer; ``grants`` tries a job's grant afterwards.

    ``by_shim`` moves the memory of stopped jobs; the watchdog begins that.
    """

    def __init__(
        self,
        seating: SeatAllocator,
        copies: StoreCopies,
        turns: Turns,
        grants: Grants,
        shims: Shims,
        watchlist: Watchlist,
        post: Callable[[Event], None],
    ) -> None:
        self._seating = seating
        self._copies = copies
        self._turns = turns
        self._grants = grants
        self._watchlist = watchlist
        self._post = post
        self._itself = JobItself(watchlist)
        self.by_shim = JobsShim(shims)
        self._copying = DaemonsCopies(copies, self._itself, self._ended)
        self._later: dict[JobId, asyncio.TimerHandle] = {}  # decisions that wait for the end of a hand-over

    def ask(self, job: JobRecord) -> None:
        """Have the job's memory moved to its store."""
        self._turns.sync(job.lane)
        job.offloading = True
        if job.bank is None:
            self._done(job)
        elif not job.attached.extents and self._never_back(job):
            self._when_known(job, self._ask_again)
        else:
            self._mover(job).begin(job)

    def _ask_again(self, job: JobRecord) -> None:
        if self._never_back(job):
            self._done(job)
        else:
            self._mover(job).begin(job)

    def _mover(self, job: JobRecord) -> Mover:
        """Return the mover that is asked first."""
        return self._copying if job.attached.extents else self._itself

    def _never_back(self, job: JobRecord) -> bool:
        """Return whether the job was to come back but has had no turn: everything is still in its store."""
        return is_out(job) and job.passed_seq == job.bank_seq and not self._holds(job)

    def drop_store(self, job: JobRecord) -> None:
        """Drop what the store still has of a job that is back."""
        if job.attached.extents:
            if not job.offloading and not self._copies.under_way(job):
                self._copies.empty(job, self._grants.again)
        elif not job.offloading and job.attached.seat.get("offload") == OffloadState.NO:
            job.attached.seat.set("offload", OffloadState.DROP)
            job.attached.notify()

    def adopt(self, job: JobRecord) -> None:
        """Expect the answer to a request of an earlier daemon."""
        state = job.attached.seat.get("offload")
        job.offloading = state == OffloadState.ASKED
        if state == OffloadState.DONE:
            job.attached.seat.set("offload", OffloadState.NO)  # the job's answer is in its seat
        self._watchlist.watch(job)

    def answered(self, job: JobRecord, packet: Packet) -> None:
        """Handle OFFLOADED; the lane has been synced."""
        if job.seated is None:
            return
        seat = job.seated.seat
        if not job.offloading:
            # The shim was faster, the answer is late, or it is for an earlier daemon and the seat has been read.
            if seat.get("offload") == OffloadState.DONE:
                seat.set("offload", OffloadState.NO)
        else:
            error = os.strerror(min(packet.a, _LARGEST_ERROR)) if packet.a else None
            if error is None and job.seated.extents:
                self._copying.begin(job)  # the job has moved what it had made itself
            else:
                self._ended(job, self._itself, MoveResult(packet.b, error))

    def taken(self, job: JobRecord, error: str | None, size: int) -> None:
        """Handle the shim's answer."""
        if job.seated is None or not job.offloading or error == WITHDRAWN:
            return  # the job itself was faster
        if error == BUSY:
            self._watchlist.mark_busy(job)
        else:
            self._ended(job, self.by_shim, MoveResult(size, error))

    def unanswered(self, job: JobRecord) -> None:
        """Give up on a job that has had its time.

        A later answer is ignored: seat and state bytes say where the job's memory is.
        """
        if job.seated is None or not job.offloading:
            return
        self._turns.sync(job.lane)
        if job.seated.seat.get("offload") == OffloadState.DONE and not self._turns.between(job.lane):
            self._decide(job, self._itself, MoveResult())
        else:
            self._failed(job, "it did not answer")

    def _ended(self, job: JobRecord, mover: Mover, moved: MoveResult) -> None:
        """Handle the first end; later ones are ignored."""
        if job.seated is None or not job.offloading:
            return
        self._turns.sync(job.lane)
        if moved.error is not None:
            self._failed(job, moved.error)
        else:
            self._when_known(job, lambda job: self._decide(job, mover, moved))

    def _when_known(self, job: JobRecord, decide: Callable[[JobRecord], None]) -> None:
        """Decide once the holder of the lane's turn is certain: at once, or when the holder has gone on or died."""
        self._forget(job)
        between = self._turns.between(job.lane)
        if not between or between[0] is job:
            decide(job)
            return
        for other in between:
            self._watchlist.watch(other)  # that job may be stopped in the middle of the hand-over
        loop = asyncio.get_running_loop()
        self._later[job.id] = loop.call_later(RECHECK_S, self._look_again, job, job.attached, decide)

    def _look_again(self, job: JobRecord, seated: Seated, decide: Callable[[JobRecord], None]) -> None:
        if job.seated is not seated or not job.offloading:
            self._forget(job)
            return
        self._turns.sync(job.lane)
        self._when_known(job, decide)

    def _forget(self, job: JobRecord) -> None:
        timer = self._later.pop(job.id, None)
        if timer is not None:
            timer.cancel()

    def _decide(self, job: JobRecord, mover: Mover, moved: MoveResult) -> None:
        if self._holds(job) or not mover.counts(job, moved):
            self._failed(job, "it got a turn first")
        else:
            self._done(job)

    def _answered(self, job: JobRecord) -> None:
        job.offloading = False
        self._mover(job).withdraw(job)
        self._forget(job)

    def _done(self, job: JobRecord) -> None:
        self._answered(job)
        self._seating.free_bank(job)
        self._seating.ledger.move_out(job.id, job.granted.persistent)
        job.granted = Memory(0, job.granted.ephemeral)  # the core will say so, too
        job.usage = usage_of(job, monotonic_us())
        self._post(Sampled(job.id, job.usage))
        self._post(Offloaded(job.id))

    def _failed(self, job: JobRecord, why: str) -> None:
        """Report the failure; the job keeps its bank."""
        self._answered(job)
        self._grants.again(job)
        self._post(OffloadFailed(job.id, f"its memory cannot be moved to the host store: {why}"))

    def _holds(self, job: JobRecord) -> bool:
        """Return whether, for the core, the job has the turn of its lane."""
        return job.lane is not None and self._seating.holder.get(job.lane) == job.id
