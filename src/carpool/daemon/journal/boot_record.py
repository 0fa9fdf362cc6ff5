"""The start of the machine that the journal was last written in."""

from __future__ import annotations

import sqlite3

from carpool.core.model import Micros
from carpool.daemon.journal.writer import Journal

# In the journal's table `meta`; the second one: what the wall clock was ahead of the monotonic one.
BOOT_ID, WALL_AHEAD = "boot_id", "wall_ahead_us"


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

    def settled(self, wall_ahead_us: Micros) -> None:
        """What follows from a restart of the machine has been handed to the journal before.

        ``wall_ahead_us``: of moments in the journal (`carpool.daemon.journal.moments`); it is worth something in this
        start of the machine only.
        """
        rows = [(BOOT_ID, self._boot), (WALL_AHEAD, str(wall_ahead_us))]
        self._journal.owe("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
