"""Processes that a user has stopped: those that have joined are noticed, and a restarted daemon gets them back.

A stopped process cannot come back to a restarted daemon by itself, and may hold a turn; for a job with a shim, the shim
comes back.  So the process is continued until it has come back, and stopped again, even if the daemon dies. Otherwise,
once continued by a user, it would compute in a lane that others have by then, until the daemon hears of it.

Processes that have joined and are stopped (Slurm's suspend, Ctrl-Z) are paused: their memory leaves the device. No shim
holds their descriptors, so only the process itself can move its memory: the watchdog continues the process until that
is done, and stops it again.  The kernel reports no stops (a pidfd does not), so the states of these processes are read
a few times a second.  A job that a user has paused stays paused when its process goes on, and a process that is killed
while it is stopped counts as stopped until its end.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from carpool.core.events import Event, PauseChanged
from carpool.core.model import JobId, JobPhase
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.privileges.base import Privileges, try_to_signal
from carpool.daemon.seats.ledger import GrantLedger
from carpool.daemon.system.processes import STOPPED, is_ending, start_time, state_of

log = logging.getLogger(__name__)

#: An older marker is out of date: the owner may have continued the job meanwhile.
RECENT_S = 60.0
LOOK_S = 0.2
#: How many looks in a row must see a process run before it counts as continued: the watchdog continues it, too.
LOOKS = 2
PAUSABLE = (JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING)


class StopMarkers:
    """One empty file in the daemon's own directory per process that runs although a user has stopped it."""

    def __init__(self, directory: Path, privileges: Privileges) -> None:
        self._directory = directory
        self._privileges = privileges

    def note(self, job: JobId) -> None:
        """Make the marker of a process that is about to be continued."""
        with suppress(OSError):  # a full disk, for example: then only a crash in this very moment is not covered
            self._file(job).touch()

    def forget(self, job: JobId) -> None:
        """Remove the marker, if there is one."""
        self._file(job).unlink(missing_ok=True)

    def settle(self, jobs: JobTable) -> None:
        """After a restart, stop the processes again that an earlier daemon had no time to stop."""
        for note in self._notes():
            try:
                job = jobs.live.get(int(note.name.removeprefix("continued-")))
                recent = time.time() - note.stat().st_mtime < RECENT_S
                note.unlink()
            except (OSError, ValueError) as error:
                log.warning("%s is not a note of this daemon: %s", note, error)
                continue
            if job is not None and job.seated is not None and recent:
                try_to_signal(self._privileges, job.seated.pid, job.owner, signal.SIGSTOP)

    def _notes(self) -> list[Path]:
        try:
            return list(self._directory.glob("continued-*"))
        except OSError as error:
            log.warning("jobs that were stopped may run now: %s", error)
            return []

    def _file(self, job: JobId) -> Path:
        return self._directory / f"continued-{job}"


class JoinedReturns:
    """Brings stopped processes back while a restarted daemon waits for the jobs of its predecessor."""

    def __init__(self, jobs: JobTable, ledger: GrantLedger, privileges: Privileges, markers: StopMarkers) -> None:
        self._jobs = jobs
        self._ledger = ledger
        self._privileges = privileges
        self._markers = markers
        self._woken: dict[JobId, int] = {}  # continued jobs, and their pids

    def look(self, missing: Iterable[JobId]) -> None:
        """Continue the stopped processes among ``missing``, and stop those again that have come back or have ended."""
        waited_for = set(missing)
        for number in sorted(waited_for - self._woken.keys()):
            job = self._jobs.live.get(number)
            if job is not None and job.spec.joined:
                self._wake(job)
        for number in sorted(self._woken.keys() - waited_for):
            self._calm(number)

    def end(self) -> None:
        """Stop waiting for processes."""
        self.look(())

    def _wake(self, job: JobRecord) -> None:
        pid, started = self._ledger.of(job.id).process or (0, 0)
        if pid and start_time(pid) == started and state_of(pid, job.owner) == STOPPED:
            self._woken[job.id] = pid
            self._markers.note(job.id)
            try_to_signal(self._privileges, pid, job.owner, signal.SIGCONT)

    def _calm(self, number: JobId) -> None:
        pid, job = self._woken.pop(number), self._jobs.live.get(number)
        if job is not None:
            try_to_signal(self._privileges, pid, job.owner, signal.SIGSTOP)
        self._markers.forget(number)


class JoinedPauses:
    """Notices stops and continuations of processes that have joined."""

    def __init__(self, jobs: JobTable, store: JournalStore, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._store = store
        self._post = post
        self._running: dict[JobId, int] = {}  # looks that have seen a stopped process run

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Look at all processes that have joined."""
        joined = [(job, job.process) for job in self._jobs.live.values() if job.process is not None]
        for job, process in joined:
            if not process.left and job.phase in PAUSABLE:
                self._look(job, process.pid)

    def _look(self, job: JobRecord, pid: int) -> None:
        if job.continued or job.changing.locked():  # the watchdog continued it, or a request changes the job now
            return
        if state_of(pid, job.owner) == STOPPED:
            self._running.pop(job.id, None)
            if not job.stopped:
                self._change(job, stopped=True, since_us=job.control.paused_since_us or self._jobs.now_us())
            return
        job.stopped = job.stopped or _was_stopped(job)  # before a restart
        if job.stopped and self._goes_on(job.id, pid):
            self._change(job, stopped=False, since_us=None if job.control.paused_by is None else self._jobs.now_us())

    def _goes_on(self, job: JobId, pid: int) -> bool:
        if is_ending(pid):
            return False
        seen = self._running.pop(job, 0) + 1
        if seen < LOOKS:
            self._running[job] = seen
        return seen >= LOOKS

    def _change(self, job: JobRecord, *, stopped: bool, since_us: int | None) -> None:
        """Report the change at once, and record it for the time limit, which does not count stopped time."""
        before = job.pauser
        job.stopped = stopped
        paused_us = job.control.paused_us if stopped else job.control.paused_in_all_us(self._jobs.now_us())
        if job.phase is JobPhase.QUEUED:  # a time limit counts from the start
            paused_us = 0
        job.control = msgspec.structs.replace(job.control, paused_since_us=since_us, paused_us=paused_us)
        self._store.note_control(job)
        if job.pauser != before:
            self._post(PauseChanged(job.id, job.pauser))


def _was_stopped(job: JobRecord) -> bool:
    """Return whether an earlier daemon has noted the job as stopped."""
    return job.control.paused_since_us is not None and job.control.paused_by is None
