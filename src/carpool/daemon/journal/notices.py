"""The journal's table of notices: an owed notice is there before it is sent, and so is the beginning of its one try."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import NamedTuple

import msgspec

from carpool.core.model import JobId
from carpool.daemon.journal.rows import NoticeRow, read_only, sound_rows
from carpool.daemon.journal.writer import Journal
from carpool.protocol.notices import NoticeInfo, NotifyTarget, shown_target

_OWED = "INSERT OR IGNORE INTO notices VALUES (?, ?, ?, ?, ?, 'owed', 0, '')"
_KEY = "WHERE job = ? AND attempt = ? AND event = ? AND place = ?"
_TRYING = f"UPDATE notices SET tries = 1 {_KEY}"
_SETTLED = f"UPDATE notices SET state = ?, text = ?, notice = ? {_KEY}"
_UNFINISHED = "WHERE state = 'owed' OR job IN (SELECT id FROM jobs WHERE phase != 'ended') ORDER BY rowid"


class Notice(msgspec.Struct, frozen=True):
    """A target and the message for it; ``cwd``: where a command runs."""

    owner: int
    gid: int
    cwd: str
    target: NotifyTarget
    body: dict[str, str | int | None]  # the JSON of a webhook; for a command each field but ``text`` is a variable


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

    def owe(self, key: NoticeKey, notice: Notice) -> None:
        """Record a notice, before what is recorded afterwards."""
        self._journal.owe(_OWED, [(*key, msgspec.json.encode(notice).decode())])

    def trying(self, key: NoticeKey) -> asyncio.Future[None]:
        """Record that the try begins; done when that is on the disk.  Raises JournalFull from the future."""
        return self._journal.durable(_TRYING, key)

    def settle(self, key: NoticeKey, state: str, text: str, notice: Notice) -> None:
        """Record that a notice is no longer owed.  ``notice``: what is kept of it."""
        self._journal.owe(_SETTLED, [(state, text, msgspec.json.encode(notice).decode(), *key)])


def read_notices(connection: sqlite3.Connection) -> list[NoticeRow]:
    """Read the notices that are owed, and all notices of jobs that have not ended."""
    return list(sound_rows(connection, "notices", NoticeRow, _sound, _UNFINISHED))


def _sound(row: NoticeRow) -> NoticeRow:
    """Return the row if its notice can be read.  Raises `msgspec.MsgspecError`."""
    msgspec.json.decode(row.notice, type=Notice)
    return row


def notices_of_job(path: Path, job: JobId) -> list[NoticeInfo]:
    """Read a job's notices from the journal's file, for a thread.  Raises `msgspec.MsgspecError` for a spoilt row."""
    with read_only(path) as connection:
        rows = connection.execute("SELECT * FROM notices WHERE job = ? ORDER BY rowid", (job,)).fetchall()
    return [_info(NoticeRow(*row)) for row in rows]


def _info(row: NoticeRow) -> NoticeInfo:
    target = shown_target(msgspec.json.decode(row.notice, type=Notice).target)
    return NoticeInfo(row.event, row.attempt, target, row.state, row.tries, row.text)
