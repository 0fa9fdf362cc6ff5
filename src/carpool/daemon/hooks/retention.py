"""Removal of ended jobs, by age and by number: when the daemon starts, every hour, and when a user has far too many.

The directory is moved aside first, then the journal's rows are deleted, then the daemon forgets the job.  A daemon that
is killed in between leaves a job without a directory, which the next daemon removes, but never a directory without a
job.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from carpool.core.model import JobId, Micros, Outcome
from carpool.daemon.hooks.base import JobHook, Work
from carpool.daemon.hooks.removed_directories import RemovedDirectories
from carpool.daemon.jobs.table import EndedJob, JobRecord, JobTable
from carpool.daemon.journal.events import JournalRemoval
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import JournalFull
from carpool.daemon.system.peer import person_of
from carpool.options.requests import dependencies
from carpool.protocol.api import SubmitRequest

log = logging.getLogger(__name__)
INTERVAL_S = 3600.0
PAUSE_S = 2.0  # at least, between two removals
AT_ONCE = 50  # jobs
#: Jobs that ended within this time stay, so that a client that waited for one's end can still ask about it.
YOUNG: Micros = 3_600_000_000
#: If a user has this many times too many jobs, only those that have just ended are spared.
CROWD = 2
JUST_ENDED: Micros = 2_000_000


@dataclass(frozen=True, slots=True)
class Keeping:
    """The age to which ended jobs are kept, the number of one user, and the number of events of all users."""

    age_us: Micros
    jobs: int
    events: int


@dataclass(frozen=True, slots=True)
class Needed:
    """Jobs that stay whatever their age: those that others wait for, and the newest, after which job ids continue."""

    awaited: Collection[JobId] = ()
    newest: JobId = 0

    def keeps(self, job: EndedJob, crowded: bool) -> bool:
        """Return whether a job stays.

        If a user has far too many, live jobs that depend on it do not keep a job that has succeeded: they no longer
        need it.
        """
        awaited = job.id in self.awaited and not (crowded and job.outcome is Outcome.SUCCEEDED)
        return awaited or job.id == self.newest


def awaited(live: Iterable[SubmitRequest], candidates: Collection[JobId]) -> set[JobId]:
    """Return the candidates that live jobs wait for.  Slow if these wait for many."""
    asked = frozenset(candidates)
    return {number for spec in live for _, numbers in dependencies(spec) for number in asked.intersection(numbers)}


def removable(ended: Collection[EndedJob], stay: Needed, keeping: Keeping, now: Micros) -> list[EndedJob]:
    """Return jobs that are too old, and the oldest of users with too many; oldest first."""
    found, counts, totals = list[EndedJob](), Counter[int](), Counter[int]()
    for job in ended:
        totals[person_of(job.owner)] += job.weight
    for job in sorted(ended, key=lambda job: (job.ended_us, job.id), reverse=True):
        person, age = person_of(job.owner), now - job.ended_us
        counts[person] += job.weight
        crowded = totals[person] > CROWD * keeping.jobs
        is_old = age > keeping.age_us or counts[person] > keeping.jobs
        if is_old and age > (JUST_ENDED if crowded else YOUNG) and not stay.keeps(job, crowded):
            found.append(job)
    return found[::-1]


@dataclass(eq=False)
class Retention(JobHook):
    """Keeps what the limits allow.  Files are handled in threads and processes, rows by the journal's thread.

    ``_removed`` is called with jobs that have been removed.
    """

    _jobs: JobTable
    _journal: JournalRemoval
    _directories: RemovedDirectories
    _keeping: Keeping
    _removed: Callable[[Sequence[JobId]], None]
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _deleting: asyncio.Task[None] | None = None
    _more_to_delete: bool = False

    def work(self) -> Mapping[str, Work]:
        """Remove old jobs again and again."""
        return {"removing old jobs": self._run}

    async def _run(self) -> None:
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
        kept, most = self._jobs.kept, CROWD * self._keeping.jobs
        while not any(kept.of(uid)[1] > most for uid in kept.users()):
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
            stay, before = await self._needed([job.id for job in jobs]), wall_us() - JUST_ENDED
            old = [job for job in jobs if job.ended_us < before and not stay.keeps(job, crowded=False)]
            await self._remove([job for job in old if job.id in self._jobs.ended])
        return [job.id for job in old if job.id not in self._jobs.ended]

    async def prune(self) -> None:
        """Remove old jobs.  Directories are deleted after this returns.  Raises OSError, JournalFull, sqlite3.Error."""
        async with self._one_at_a_time:
            ended = self._jobs.ended
            stay = await self._needed(list(ended))
            old = removable(list(ended.values()), stay, self._keeping, wall_us())
            await self._remove(old)
            kept: list[EndedJob | JobRecord] = [*ended.values(), *self._jobs.live.values()]
            removed = max((job.ended_us for job in old), default=0)  # a journal begins with events of no job
            before = min([removed, *(job.submitted_us for job in kept)])
            oldest = max(before, wall_us() - self._keeping.age_us)
            await self._journal.events(before=oldest, most=self._keeping.events)

    async def _needed(self, candidates: Collection[JobId]) -> Needed:
        """Return which of the candidates must stay.

        Live jobs are searched in a thread; those submitted meanwhile are searched afterwards.
        """
        before = {number: job.spec for number, job in self._jobs.live.items()}
        found = await asyncio.to_thread(awaited, list(before.values()), candidates)
        live = self._jobs.live
        later = [job.spec for number, job in live.items() if before.get(number) is not job.spec]
        return Needed(found | awaited(later, candidates), max([*self._jobs.ended, *live], default=0))

    async def _remove(self, old: Sequence[EndedJob]) -> None:
        """Remove jobs; directories that were moved aside are deleted even if the journal was full."""
        numbers = [job.id for job in self._jobs.with_predecessors(old)]
        try:
            for first in range(0, len(numbers), AT_ONCE):
                batch = numbers[first : first + AT_ONCE]
                gone = await asyncio.to_thread(self._directories.move_aside, batch)
                await self._journal.jobs(gone)
                self._jobs.remove(gone)
                self._removed(gone)
                log.info("removed %d jobs that have ended, up to job %d", len(gone), max(gone, default=0))
        finally:
            self._begin_deleting()

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
