"""Jobs that do not answer because they are stopped (SIGSTOP, Ctrl-Z, a debugger).

Without a turn: the job's shim moves its memory.  With a turn, in the middle of moving, or with extents that have been
cut: only the job itself can go on, so it is continued until it has let go, and stopped again.  Whoever was not stopped
when we looked is never stopped by us; but if somebody continues the job in those milliseconds we cannot see it, and
stop it.

A job that runs and does not answer either (frozen, starved, in a debugger, or malicious) must not hold up others for
ever.  Memory: its shim is asked for it too, and in the end the offload counts as failed.  A turn, and extents that were
cut: the job is killed when its lease is over (`LEASE_S` after it had to let go at once), for nothing else keeps it from
writing on.  What the daemon has asked for is the watchlist's, or a cut of the job's record; the words of the seat,
which the job may write, put nothing off.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from carpool.core.model import JobId
from carpool.daemon.jobs.killing import Signaller, kill
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
from carpool.daemon.jobs.watchlist import LOOK_S, Watchlist
from carpool.daemon.memory.movers import JobsShim
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.seats.record import request_yield
from carpool.daemon.seats.turns import Turns
from carpool.daemon.stopped.markers import StopMarkers
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.process_state import STOPPED, TRACED, state_of
from carpool.protocol.seat import CHUNK, IN_STORE, Yield

log = logging.getLogger(__name__)
FIRST_LOOK_S = 0.05
POLL_S = 0.001
POLLS = 1000
#: Without an answer and without progress: when its shim is asked whatever the process does, and how long after that.
TAKE_AFTER_S = 1.0
FAIL_AFTER_S = 10.0
#: How long a job may keep a turn that it has to give back at once, or extents that have been cut.  Counted in looks: a
#: daemon that gets no processor time looks later, and the job, on the same machine, has more time, too.
LEASE_S = 10.0


@dataclass(slots=True)
class _Patience:
    """Since when an offload has made no progress, as far as can be seen from outside."""

    since: float
    seen: object = None

    def spent(self, seen: object) -> float:
        now = monotonic()
        if seen is None or seen != self.seen:
            self.since, self.seen = now, seen
        return now - self.since


class Requests(Protocol):
    """Who has asked jobs to offload (`carpool.daemon.memory.offload`)."""

    by_shim: JobsShim
    """Who moves a stopped job's memory."""

    def unanswered(self, job: JobRecord) -> None:
        """The job has had its time."""
        ...


class Watchdog:
    """One task per job that owes an answer: those that others enter in the watchlist."""

    def __init__(
        self,
        jobs: JobTable,
        kept: StopMarkers,
        watchlist: Watchlist,
        turns: Turns,
        offloads: Requests,
        processes: Signaller,
        privileges: Privileges,
    ) -> None:
        self._jobs = jobs
        self._kept = kept
        self._watchlist = watchlist
        self._turns = turns
        self._offloads = offloads
        self._processes = processes
        self._privileges = privileges
        self._tasks: dict[JobId, asyncio.Task[None]] = {}
        self._traced: set[JobId] = set()  # those of whom the log has been told

    async def run(self) -> None:
        """For ever."""
        while True:
            self.watch(await self._watchlist.next())

    def watch(self, job: JobRecord) -> None:
        """The job has been asked for something.  See whether it answers."""
        if job.id not in self._tasks:
            self._tasks[job.id] = asyncio.create_task(self._watch(job))

    def settle(self) -> None:
        """After a restart, before anything is asked."""
        self._kept.settle(self._jobs)

    async def close(self) -> None:
        """When nobody is continued any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _watch(self, job: JobRecord) -> None:
        patience = _Patience(monotonic())
        try:
            await asyncio.sleep(FIRST_LOOK_S)
            while self._owes(job):
                try:
                    await self._look(job, patience)
                except OSError as error:  # no descriptors left, for example: next time
                    text = "cannot look after job %d, which does not answer: %s"
                    log.error(text, job.id, error, extra=caused_by(job.owner))
                await asyncio.sleep(LOOK_S)
            self._turns.wake_successor(job)  # it may have been stopped just before it would have
        finally:
            del self._tasks[job.id]
            self._watchlist.forget(job)
            self._traced.discard(job.id)

    def _owes(self, job: JobRecord) -> bool:
        if job.id not in self._jobs.live or job.seated is None:
            return False
        asked = self._watchlist.revocation(job) is not None and self._turns.holds(job)
        return asked or self._owes_memory(job) or bool(job.cuts) or self._turns.passing(job)

    def _owes_memory(self, job: JobRecord) -> bool:
        """Whether it, or its shim, has been asked to move its memory."""
        return job.offloading and job.seated is not None and not job.seated.extents

    def _owes_turn(self, job: JobRecord) -> bool:
        """Whether it has been told to let go, or to pause, at once, and others do not have its turn yet.

        It clears its `turn` first and says to whom it goes last: stopped in between it would take the turn along.
        """
        if self._turns.passing(job):
            return True
        revoked = self._watchlist.revocation(job)
        return revoked is not None and revoked.how is not Yield.BOUNDARY and self._turns.holds(job)

    async def _look(self, job: JobRecord, patience: _Patience) -> None:
        assert job.seated is not None
        state = state_of(job.seated.pid, job.owner)
        if state == STOPPED or self._comes_to_no_boundary(job):
            self._hurry(job, job.seated)
        if self._lease_over(job, state):
            return
        if self._owes_memory(job):
            spent = patience.spent(_progress(job))
            if spent > TAKE_AFTER_S + FAIL_AFTER_S:
                text, pid = "job %d, process %d (%s), did not offload", job.seated.pid
                log.warning(text, job.id, pid, state or "unknown", extra=caused_by(job.owner))
                self._offloads.unanswered(job)
                return
            if spent > TAKE_AFTER_S and state != STOPPED and self._can_be_taken(job):
                self._offloads.by_shim.begin(job)  # the mover's lock and the shim's own checks make that safe
                return
        if state not in (STOPPED, TRACED):
            self._watchlist.clear_busy(job)
        elif self._can_be_taken(job) and self._offloads.by_shim.begin(job):
            return  # the answer comes, or we ask again
        elif state == STOPPED:
            await self._let_go(job)
        elif job.id not in self._traced:
            self._traced.add(job.id)
            text = "job %d holds up others: a debugger has stopped process %d"
            log.warning(text, job.id, job.seated.pid, extra=caused_by(job.owner))

    def _comes_to_no_boundary(self, job: JobRecord) -> bool:
        """Whether a turn that was asked back before it came has lasted for a lease."""
        revoked = self._watchlist.revocation(job)
        if revoked is None or not revoked.forced or not self._turns.holds(job):
            return False
        return revoked.looked() * LOOK_S > LEASE_S

    def _hurry(self, job: JobRecord, seated: Seated) -> None:
        """A job that comes to no boundary is to let go at once, now that it has been asked at all."""
        revoked = self._watchlist.revocation(job)
        if revoked is not None and revoked.how is Yield.BOUNDARY and self._turns.holds(job):
            request_yield(seated.board, seated.seat, Yield.NOW)
            self._watchlist.revoke(job, Yield.NOW)

    def _lease_over(self, job: JobRecord, state: str) -> bool:
        """Whether the job has kept its turn, or extents, for too long; then it is killed.  Counts a look."""
        return (self._owes_turn(job) and self._turn_is_over(job, state)) or self._cut_is_over(job, state)

    def _turn_is_over(self, job: JobRecord, state: str) -> bool:
        revoked = self._watchlist.revocation(job)
        if revoked is None:  # in the middle of a hand-over that it began by itself
            return False
        if revoked.looked() * LOOK_S <= LEASE_S:
            return False
        self._kill(job, "pause" if revoked.how is Yield.PAUSE else "give its turn back", state)
        return True

    def _cut_is_over(self, job: JobRecord, state: str) -> bool:
        _count(job, 1)
        if max(job.cuts.values(), default=0) * LOOK_S <= LEASE_S:
            return False
        self._kill(job, "let go of memory that was taken back", state)
        return True

    def _kill(self, job: JobRecord, what: str, state: str) -> None:
        """Once: the end of the job takes a moment."""
        if job.fault is None:
            held = {STOPPED: " (it is stopped)", TRACED: " (a debugger has stopped it)"}.get(state, "")
            kill(job, "lease", f"it did not {what} within {LEASE_S:.0f} s{held}, and others waited", self._processes)

    def _can_be_taken(self, job: JobRecord) -> bool:
        return (
            self._owes_memory(job)
            and job.seated is not None
            and not job.seated.seat.get("turn")
            and not self._turns.passing(job)
            and not self._watchlist.is_busy(job)
        )

    async def _let_go(self, job: JobRecord) -> None:
        """Let it run until it has given what it owes, a second at most, and stop it again."""
        assert job.seated is not None
        pid, turn = job.seated.pid, self._owes_turn(job)
        if not turn and job.seated.seat.get("turn") and not job.cuts:
            return  # nobody has asked for its turn, and it cannot answer before
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                if state_of(pid, job.owner) == STOPPED:
                    await self._run_on(job, fd, turn)
            finally:
                os.close(fd)

    async def _run_on(self, job: JobRecord, fd: int, turn: bool) -> None:
        self._kept.note(job.id)
        job.continued = True
        try:
            self._privileges.signal(fd, job.owner, signal.SIGCONT)
            for _ in range(POLLS):
                await asyncio.sleep(POLL_S)
                if not (self._owes_turn(job) if turn else self._owes(job)):
                    return
            text = "job %d is stopped and did not let go when it was continued"
            log.warning(text, job.id, extra=caused_by(job.owner))
            looks = int(POLLS * POLL_S / LOOK_S)
            if (revoked := self._watchlist.revocation(job)) is not None:
                revoked.looked(looks)
            _count(job, looks)
        finally:
            self._turns.wake_successor(job)  # it may not get round to it
            with suppress(ProcessLookupError):
                self._privileges.signal(fd, job.owner, signal.SIGSTOP)
            self._kept.forget(job.id)
            job.continued = False


def _count(job: JobRecord, looks: int) -> None:
    """The job has had so much more time for what has been cut."""
    for cut in job.cuts:
        job.cuts[cut] += looks


def _progress(job: JobRecord) -> object:
    """What changes while its memory is moved, by itself or by its shim; None while it cannot move anything."""
    assert job.seated is not None
    if job.seated.seat.get("turn"):
        return None
    fd = job.seated.store_fd
    about = os.fstat(fd)
    bank = about.st_size // (CHUNK + 1) * CHUNK
    states = os.pread(fd, about.st_size - bank, bank)
    return about.st_blocks, about.st_mtime_ns, states.count(IN_STORE)
