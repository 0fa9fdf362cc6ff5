"""Processes that have joined and are stopped (Slurm's suspend, Ctrl-Z) are paused: their memory leaves the device.

No shim holds their descriptors, so only the process itself can move its memory: the watchdog continues the process
until that is done, and stops it again.  The kernel reports no stops (a pidfd does not), so the states of these
processes are read a few times a second.  A job that a user has paused stays paused when its process goes on, and a
process that is killed while it is stopped counts as stopped until its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from carpool.core.events import Event, PauseChanged
from carpool.core.model import JobId, JobPhase
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.system.processes import STOPPED, is_ending, state_of

LOOK_S = 0.2
#: How many looks in a row must see a process run before it counts as continued: the watchdog continues it, too.
LOOKS = 2
PAUSABLE = (JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING)


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
        stopped = state_of(pid, job.owner) == STOPPED
        if not job.stopped and not stopped and _was_stopped(job):  # before a restart
            job.stopped = True
        if stopped:
            self._running.pop(job.id, None)
        if stopped and not job.stopped:
            self._change(job, stopped=True, since_us=job.control.paused_since_us or self._jobs.now_us())
        elif job.stopped and not stopped and not is_ending(pid) and self._goes_on(job.id):
            self._change(job, stopped=False, since_us=None if job.control.paused_by is None else self._jobs.now_us())

    def _goes_on(self, job: JobId) -> bool:
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
