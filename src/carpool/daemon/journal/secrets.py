"""Erasing what is deleted from the journal from its files, too: environments of jobs hold tokens and passwords.

SQLite overwrites deleted rows with zeros (``PRAGMA secure_delete``), but older copies stay in the write-ahead log until
that is emptied.  Emptying costs two fsyncs, so it follows all deletions of a few seconds at once.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import suppress

log = logging.getLogger(__name__)
PAUSE_S = 5.0  # from the first deletion on; a reader that is in the way is waited for as long again


def empty_log_at_start(connection: sqlite3.Connection) -> None:
    """Empty the write-ahead log of a daemon that was killed.  A full disk only delays it."""
    try:
        empty_log(connection)
    except sqlite3.Error as error:
        log.warning("environments of ended jobs may still be in the journal: %s; the next start tries again", error)


def empty_log(connection: sqlite3.Connection) -> bool:
    """Empty the write-ahead log; False: a reader is in the way, and nothing is lost.  Raises sqlite3.Error."""
    (patience_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience_ms}")
    return not busy


class LogEmptying:
    """Decides when the write-ahead log is emptied next.  Used by the journal's thread."""

    def __init__(self, connection: sqlite3.Connection, pause_s: float = PAUSE_S) -> None:
        self._connection = connection
        self._pause_s = pause_s
        self._due: float | None = None

    @property
    def wait_s(self) -> float | None:
        """How long until the log is to be emptied; None: it is not."""
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def deleted(self) -> None:
        """Note that something secret has been deleted."""
        if self._due is None:
            self._due = time.monotonic() + self._pause_s

    def look(self, *, last: bool = False) -> None:
        """Empty the log if it is time; ``last``: there will be no later call."""
        if self._due is None or (self._due > time.monotonic() and not last):
            return
        self._due = time.monotonic() + self._pause_s
        with suppress(sqlite3.Error):  # the disk is full, say
            self._due = None if empty_log(self._connection) else self._due
