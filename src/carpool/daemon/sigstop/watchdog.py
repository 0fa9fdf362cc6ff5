"""Jobs that do not answer because they are stopped (SIGSTOP, Ctrl-Z, a debugger).

A job without a turn: its shim moves its memory.  A job with a turn, in the middle of moving, or with extents that have
been cut: only the job itself can go on, so it is continued until it has given what it owes, and stopped again.  A
process that was not stopped when the daemon looked is never stopped by the daemon; but if a user continues the job in
those milliseconds, the daemon cannot see that, and stops it.

A job that runs and does not answer either (frozen, starved, in a debugger, or malicious) must not hold up others for
ever.  Memory: its shim is asked, too, and in the end the offload counts as failed.  A turn, and extents that were cut:
the job is killed when its lease is over (`LEASE_S` after the request to give them back at once), because nothing else
keeps it from writing on.  Requests of the daemon are kept in the watchlist, cuts in the job's record; the words of the
seat, which the job may write, delay nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
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
from carpool.daemon.sigstop.stopped import StopMarkers
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.processes import STOPPED, TRACED, state_of
from carpool.protocol.seat import CHUNK, IN_STORE, OffloadState, Yield

log = logging.getLogger(__name__)
FIRST_LOOK_S = 0.05
POLL_S = 0.001
POLLS = 1000
#: Without an answer and without progress: when the job's shim is asked, whatever the process does, and how long after
#: that the offload counts as failed.
TAKE_AFTER_S = 1.0
FAIL_AFTER_S = 10.0
#: How long a job may keep a turn that it has to give back at once, or extents that have been cut.  Counted in looks: if
#: the daemon gets no processor time it looks later, so the job, on the same machine, has more time, too.
LEASE_S = 10.0


@dataclass(slots=True)
class _Patience:
    """The time for which an offload has made no progress that can be seen from outside."""

    since: float
    seen: object = None

    def spent(self, seen: object) -> float:
        now = monotonic()
        if seen is None or seen != self.seen:
            self.since, self.seen = now, seen
        return now - self.since


class Requests(Protocol):
    """Has asked jobs to offload (`carpool.daemon.memory.offload`)."""

    by_shim: JobsShim
    """The mover of a stopped job's memory."""

    def unanswered(self, job: JobRecord) -> None:
        """Give up: the job has had its time."""
        ...


@dataclass(eq=False)
class Watchdog:
    """Runs one task per job that owes an answer: the jobs that other code enters in the watchlist."""

    _jobs: JobTable
    _kept: StopMarkers
    _watchlist: Watchlist
    _turns: Turns
    _offloads: Requests
    _processes: Signaller
    _privileges: Privileges
    _tasks: dict[JobId, asyncio.Task[None]] = field(default_factory=dict)
    _traced: set[JobId] = field(default_factory=set)  # jobs stopped by a debugger that have been logged

    async def run(self) -> None:
        """Watch jobs from the watchlist, for ever."""
        while True:
            self.watch(await self._watchlist.next())

    def watch(self, job: JobRecord) -> None:
        """Watch whether the job, which has been asked for something, answers."""
        if job.id not in self._tasks:
            self._tasks[job.id] = asyncio.create_task(self._watch(job))

    def settle(self) -> None:
        """After a restart, stop processes again, before jobs are asked for anything."""
        self._kept.settle(self._jobs)

    async def close(self) -> None:
        """End all tasks; no job is continued afterwards."""
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
            self._turns.wake_successor(job)  # the job may have been stopped just before that
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
        """Return whether the job, or its shim, has been asked to move its memory."""
        if not job.offloading or job.seated is None:
            return False
        return not job.seated.extents or job.seated.seat.get("offload") == OffloadState.ASKED

    def _owes_turn(self, job: JobRecord) -> bool:
        """Return whether the job must give its turn back, or pause, at once, and others do not have the turn yet.

        A job clears its `turn` first and names its successor last: stopped in between, it would keep the turn from
        others.
        """
        if self._turns.passing(job):
            return True
        revoked = self._watchlist.revocation(job)
        return revoked is not None and revoked.how is not Yield.BOUNDARY and self._turns.holds(job)

    async def _look(self, job: JobRecord, patience: _Patience) -> None:
        state = state_of(job.attached.pid, job.owner)
        if state == STOPPED or self._is_past_its_lease(job):
            self._hurry(job, job.attached)
        if self._lease_over(job, state):
            return
        if self._owes_memory(job) and self._took_too_long(job, state, patience.spent(_progress(job))):
            return
        if state not in (STOPPED, TRACED):
            self._watchlist.clear_busy(job)
        elif self._can_be_taken(job) and self._offloads.by_shim.begin(job):
            return  # the answer comes, or we ask again
        elif state == STOPPED:
            await self._let_go(job)
        else:
            self._log_traced(job)

    def _log_traced(self, job: JobRecord) -> None:
        """Log once that a debugger keeps the job from answering."""
        if job.id not in self._traced:
            self._traced.add(job.id)
            text = "job %d holds up others: a debugger has stopped process %d"
            log.warning(text, job.id, job.attached.pid, extra=caused_by(job.owner))

    def _took_too_long(self, job: JobRecord, state: str, spent_s: float) -> bool:
        """Return whether the shim is asked to move the memory, or the offload has failed, after such a time."""
        if spent_s > TAKE_AFTER_S + FAIL_AFTER_S:
            text, pid = "job %d, process %d (%s), did not offload", job.attached.pid
            log.warning(text, job.id, pid, state or "unknown", extra=caused_by(job.owner))
            self._offloads.unanswered(job)
            return True
        if spent_s > TAKE_AFTER_S and state != STOPPED and self._can_be_taken(job):
            self._offloads.by_shim.begin(job)  # the mover's lock and the shim's own checks make that safe
            return True
        return False

    def _is_past_its_lease(self, job: JobRecord) -> bool:
        """Return whether a turn that had been asked back before it was granted has lasted for a lease."""
        revoked = self._watchlist.revocation(job)
        if revoked is None or not revoked.forced or not self._turns.holds(job):
            return False
        return revoked.looked() * LOOK_S > LEASE_S

    def _hurry(self, job: JobRecord, seated: Seated) -> None:
        """Ask a job that will come to no boundary to give its turn back at once, if it has been asked for the turn."""
        revoked = self._watchlist.revocation(job)
        if revoked is not None and revoked.how is Yield.BOUNDARY and self._turns.holds(job):
            request_yield(seated.board, seated.seat, Yield.NOW)
            self._watchlist.revoke(job, Yield.NOW)

    def _lease_over(self, job: JobRecord, state: str) -> bool:
        """Return whether the job has kept its turn, or extents, for too long; such a job is killed.  Counts a look."""
        return (self._owes_turn(job) and self._turn_is_over(job, state)) or self._cut_is_over(job, state)

    def _turn_is_over(self, job: JobRecord, state: str) -> bool:
        revoked = self._watchlist.revocation(job)
        if revoked is None:  # in the middle of a hand-over that the job began by itself
            return False
        if revoked.looked() * LOOK_S <= LEASE_S:
            return False
        self._kill(job, "pause" if revoked.how is Yield.PAUSE else "give its turn back", state)
        return True

    def _cut_is_over(self, job: JobRecord, state: str) -> bool:
        _count(job, 1)
        if max(job.cuts.values(), default=0) * LOOK_S <= LEASE_S:
            return False
        self._kill(job, "release memory that was taken back", state)
        return True

    def _kill(self, job: JobRecord, what: str, state: str) -> None:
        """Kill the job once; its end takes a moment."""
        if job.fault is None:
            held = {STOPPED: " (it is stopped)", TRACED: " (a debugger has stopped it)"}.get(state, "")
            kill(job, "lease", f"it did not {what} within {LEASE_S:.0f} s{held}, and others waited", self._processes)

    def _can_be_taken(self, job: JobRecord) -> bool:
        return (
            self._owes_memory(job)
            and job.seated is not None
            and not job.seated.extents
            and not job.seated.seat.get("turn")
            and not self._turns.passing(job)
            and not self._watchlist.is_busy(job)
        )

    async def _let_go(self, job: JobRecord) -> None:
        """Let the process run until it has given what it owes, a second at most, and stop it again."""
        pid, turn = job.attached.pid, self._owes_turn(job)
        if not turn and job.attached.seat.get("turn") and not job.cuts:
            return  # its turn has not been asked for, and the job cannot answer before the end of the turn
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
            text = "job %d is stopped and released nothing when it was continued"
            log.warning(text, job.id, extra=caused_by(job.owner))
            looks = int(POLLS * POLL_S / LOOK_S)
            if (revoked := self._watchlist.revocation(job)) is not None:
                revoked.looked(looks)
            _count(job, looks)
        finally:
            self._turns.wake_successor(job)  # the job may not get round to that
            with suppress(ProcessLookupError):
                self._privileges.signal(fd, job.owner, signal.SIGSTOP)
            self._kept.forget(job.id)
            job.continued = False


def _count(job: JobRecord, looks: int) -> None:
    """Count looks as time that the job has had for what has been cut."""
    for cut in job.cuts:
        job.cuts[cut] += looks


def _progress(job: JobRecord) -> object:
    """Return a value that changes while the job or its shim moves its memory; None while neither can move anything."""
    if job.attached.seat.get("turn"):
        return None
    fd = job.attached.store_fd
    about = os.fstat(fd)
    bank = about.st_size // (CHUNK + 1) * CHUNK
    states = os.pread(fd, about.st_size - bank, bank)
    return about.st_blocks, about.st_mtime_ns, states.count(IN_STORE)
