"""Removes ended jobs: when the daemon starts, every hour, and when one user has far too many.

The directory is moved aside first, then the journal's rows are deleted, then the daemon forgets the job.  A daemon that
is killed in between leaves a job without a directory, which the next daemon removes, but never a directory without a
job.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from carpool.core.model import JobId
from carpool.daemon.jobs.table import EndedJob, JobRecord, JobTable
from carpool.daemon.journal.removal import JournalRemoval
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.retention.directories import RemovedDirectories, log_bytes, move_aside
from carpool.daemon.retention.selection import JUST_ENDED, Keeping, Needed, awaited, removable
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import JournalFull
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
INTERVAL_S = 3600.0
PAUSE_S = 2.0  # at least, between two removals
AT_ONCE = 50  # jobs


class Pruner:
    """Keeps what the limits allow.  Files are handled in threads and processes, rows by the journal's thread."""

    def __init__(
        self,
        home: Home,
        privileges: Privileges,
        jobs: JobTable,
        journal: JournalRemoval,
        keeping: Keeping,
        removed: Callable[[Sequence[JobId]], None],
    ) -> None:
        """``removed`` is called with jobs that have been removed."""
        self._home = home
        self._privileges = privileges
        self._jobs = jobs
        self._journal = journal
        self._keeping = keeping
        self._removed = removed
        self._directories = RemovedDirectories(home, privileges)
        self._one_at_a_time = asyncio.Lock()
        self._deleting: asyncio.Task[None] | None = None
        self._more_to_delete = False

    async def run(self) -> None:
        """Prune again and again; a failed removal is tried again an hour later."""
        while True:
            try:
                await self.prune()
            except (OSError, JournalFull, sqlite3.Error) as error:
                log.warning("cannot remove old jobs: %s", error)
            await asyncio.sleep(PAUSE_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._crowd(), INTERVAL_S)

    async def _crowd(self) -> None:
        """Wait until a user has so many ended jobs that they cannot wait for the hourly removal."""
        kept = self._jobs.kept
        while not any(self._keeping.crowded(*kept.of(uid)) for uid in kept.users()):
            self._jobs.one_ended.clear()
            await self._jobs.one_ended.wait()

    async def remove(self, jobs: Sequence[EndedJob]) -> list[JobId]:
        """Remove jobs that their owner no longer wants; return the ids of those that are gone.

        Jobs that others wait for, the newest job, and jobs that have just ended stay.  Directories are deleted after
        this has returned.  Raises OSError, JournalFull, sqlite3.Error.
        """
        if not jobs:
            return []
        async with self._one_at_a_time:
            stay = await self._needed([job.id for job in jobs])
            just_ended = wall_us() - JUST_ENDED
            old = [job for job in jobs if job.ended_us < just_ended and not stay.keeps(job, crowded=False)]
            await self._remove_all([job for job in old if job.id in self._jobs.ended])
        return [job.id for job in old if job.id not in self._jobs.ended]

    async def _needed(self, candidates: Collection[JobId]) -> Needed:
        """Return which of the candidates must stay.

        Live jobs are searched in a thread; those submitted meanwhile are searched afterwards.
        """
        before = {number: job.spec for number, job in self._jobs.live.items()}
        found = await asyncio.to_thread(awaited, list(before.values()), candidates)
        live = self._jobs.live
        later = [job.spec for number, job in live.items() if before.get(number) is not job.spec]
        return Needed(found | awaited(later, candidates), max([*self._jobs.ended, *live], default=0))

    def _begin_deleting(self) -> None:
        """Delete directories in the background, without holding up answers or removals; later ones are deleted next."""
        self._more_to_delete = True
        if self._deleting is None or self._deleting.done():
            self._deleting = asyncio.create_task(self._delete())

    async def _delete(self) -> None:
        while self._more_to_delete:
            self._more_to_delete = False
            try:
                await self._directories.delete()
            except OSError as error:  # tried again with the next removal
                log.warning("cannot delete the directories of removed jobs: %s", error)

    async def prune(self) -> None:
        """Remove old jobs.  Directories are deleted after this returns.  Raises OSError, JournalFull, sqlite3.Error."""
        async with self._one_at_a_time:
            await self._prune()

    async def _prune(self) -> None:
        ended = self._jobs.ended
        sizes = await asyncio.to_thread(log_bytes, self._privileges, self._home, list(ended.values()))
        stay = await self._needed(list(ended))
        old = removable(list(ended.values()), sizes, stay, self._keeping, wall_us())
        await self._remove_all(old)
        kept: list[EndedJob | JobRecord] = [*ended.values(), *self._jobs.live.values()]
        removed = max((job.ended_us for job in old), default=0)  # a journal begins with events of no job
        before = min([removed, *(job.submitted_us for job in kept)])
        oldest = max(before, wall_us() - self._keeping.age_us)
        await self._journal.events(before=oldest, most=self._keeping.events)

    async def _remove_all(self, old: Sequence[EndedJob]) -> None:
        """Remove jobs; directories that were moved aside are deleted even if the journal was full."""
        old = self._jobs.with_predecessors(old)
        try:
            for first in range(0, len(old), AT_ONCE):
                await self._remove(old[first : first + AT_ONCE])
        finally:
            self._begin_deleting()

    async def _remove(self, old: Sequence[EndedJob]) -> None:
        gone = await asyncio.to_thread(move_aside, self._privileges, self._home, [job.id for job in old])
        await self._journal.jobs(gone)
        self._jobs.remove(gone)
        self._removed(gone)
        log.info("removed %d jobs that have ended, up to job %d", len(gone), max(gone, default=0))
