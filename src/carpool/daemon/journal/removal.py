"""Removing from the journal what it no longer keeps: jobs with all rows about them, and events.

In small transactions, because other writers to the journal wait for each.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from carpool.core.model import JobId, Micros
from carpool.daemon.journal import event_shares
from carpool.daemon.journal.device_times import KEY
from carpool.daemon.journal.writer import Journal

EVENTS_AT_ONCE = 500
_JOBS = (
    "DELETE FROM attempts WHERE job = ?",
    "DELETE FROM placements WHERE job = ?",
    "DELETE FROM notices WHERE job = ?",
    f"DELETE FROM meta WHERE key = '{KEY}' || ?",
    "DELETE FROM quarantine WHERE source = 'jobs' AND job = ?",
    "DELETE FROM jobs WHERE id = ? AND phase = 'ended'",
)
#: Up to the first that is young enough, but never the last one: numbers of events go on from there.
_OLD = """SELECT coalesce((SELECT seq FROM events WHERE wall_us >= ? ORDER BY seq LIMIT 1),
  (SELECT max(seq) FROM events), 0)"""
#: The event of a job's submission stays until that job has ended: see `carpool.daemon.journal.stand_ins`.
_SELECTED = """seq < ?
  AND NOT (kind = 'Submitted' AND job IN (SELECT id FROM jobs WHERE phase != 'ended'))"""
_COUNT = f"SELECT count(*) FROM events WHERE {_SELECTED}"
_EVENTS = f"DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE {_SELECTED} ORDER BY seq LIMIT ?)"


class JournalRemoval:
    """Deletes rows for good.  ``path``: the journal's file, which is read beside its writer."""

    def __init__(self, journal: Journal, path: Path) -> None:
        self._journal = journal
        self._path = path

    async def jobs(self, numbers: Sequence[JobId]) -> None:
        """Remove jobs and all rows about them; the last statement deletes the jobs themselves.

        Raises JournalFull, sqlite3.Error; then jobs may be left without the rest.
        """
        rows = [(number,) for number in numbers]
        await asyncio.gather(*(self._journal.durable(sql, *rows) for sql in _JOBS))

    async def events(self, before: Micros, most: int) -> int:
        """Remove events from before a moment of the wall clock, and surplus events; return how many.

        ``most``: events that are not of frequent kinds, which have a limit of their own.  Raises JournalFull,
        sqlite3.Error.
        """
        first_kept, count = await asyncio.to_thread(self._old_events, before)
        for _ in range(0, count, EVENTS_AT_ONCE):
            await self._journal.durable(_EVENTS, (first_kept, EVENTS_AT_ONCE))
        more = await asyncio.to_thread(event_shares.excess, self._path, most, frequent=False)
        for first in range(0, len(more), EVENTS_AT_ONCE):
            await self._journal.durable(event_shares.DELETE, *more[first : first + EVENTS_AT_ONCE])
        return count + len(more)

    def _old_events(self, before: Micros) -> tuple[int, int]:
        with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (first_kept,) = connection.execute(_OLD, (before,)).fetchone()
            (count,) = connection.execute(_COUNT, (first_kept,)).fetchone()
        return first_kept, count
