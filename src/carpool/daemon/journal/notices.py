"""The journal's table of notices: an owed notice is there before it is sent, with the number of tries so far."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from carpool.core.model import JobId
from carpool.daemon.jobs.notice import Notice
from carpool.daemon.journal.quarantine import sound_rows
from carpool.daemon.journal.row_types import NoticeRow
from carpool.daemon.journal.writer import Journal

_OWED = "INSERT OR IGNORE INTO notices VALUES (?, ?, ?, ?, ?, ?, 0, ?)"
_KEY = "WHERE job = ? AND attempt = ? AND event = ? AND place = ?"
_TRIED = f"UPDATE notices SET tries = ? {_KEY}"
_FAILED_TRY = f"UPDATE notices SET text = ? {_KEY}"
_SETTLED = f"UPDATE notices SET state = ?, text = ?, notice = ? {_KEY}"
_UNFINISHED = "WHERE state = 'owed' OR job IN (SELECT id FROM jobs WHERE phase != 'ended') ORDER BY rowid"


class NoticeKey(NamedTuple):
    """``place``: the target's position in the submission."""

    job: JobId
    attempt: int
    event: str
    place: int


class NoticeTable:
    """Writes through the journal's thread."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def owe(self, key: NoticeKey, notice: str, state: str = "owed", text: str = "") -> None:
        """Record a notice, before what is recorded afterwards.  ``state``, ``text``: as in `NoticeInfo`."""
        self._journal.owe(_OWED, [(*key, notice, state, text)])

    def trying(self, key: NoticeKey, tries: int) -> asyncio.Future[None]:
        """Record a try; the future is done when it is on the disk, so that a try that is interrupted counts.

        Raises JournalFull from the future.
        """
        return self._journal.durable(_TRIED, (tries, *key))

    def failed_try(self, key: NoticeKey, text: str) -> None:
        """Record why a try failed; the notice is still owed."""
        self._journal.owe(_FAILED_TRY, [(text, *key)])

    def settle(self, key: NoticeKey, state: str, text: str, notice: str) -> None:
        """Record that a notice is no longer owed.  ``notice``: what is kept of the notice."""
        self._journal.owe(_SETTLED, [(state, text, notice, *key)])


def read_notices(connection: sqlite3.Connection) -> list[NoticeRow]:
    """Read the notices that are owed, and all notices of jobs that have not ended."""
    return list(sound_rows(connection, "notices", NoticeRow, _sound, _UNFINISHED))


def _sound(row: NoticeRow) -> NoticeRow:
    """Return the row if its notice can be read.  Raises `msgspec.MsgspecError`."""
    msgspec.json.decode(row.notice, type=Notice)
    return row


def notices_of_job(path: Path, job: JobId) -> Iterator[NoticeRow]:
    """Read a job's notices from the journal's file, for a thread.  Invalid rows raise `msgspec.ValidationError`."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT * FROM notices WHERE job = ? ORDER BY rowid", (job,)).fetchall()
    return (NoticeRow(*row) for row in rows)
