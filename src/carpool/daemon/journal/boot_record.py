"""The start of the machine that the journal was last written in."""

from __future__ import annotations

import sqlite3

from carpool.daemon.journal.writer import Journal

BOOT_ID = "boot_id"  # in the journal's table `meta`


def read_boot_id(connection: sqlite3.Connection) -> str | None:
    """None: the daemon before was of a version that did not write it down."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (BOOT_ID,)).fetchone()
    return None if row is None else str(row[0])


class BootRecord:
    """``restarted``: the machine has, since an earlier daemon wrote to the journal."""

    def __init__(self, journal: Journal, boot: str, restarted: bool) -> None:
        self._journal = journal
        self._boot = boot
        self.restarted = restarted

    def settled(self) -> None:
        """What follows from a restart of the machine has been handed to the journal before."""
        self._journal.owe("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(BOOT_ID, self._boot)])
