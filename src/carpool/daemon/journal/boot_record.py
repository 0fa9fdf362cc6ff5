"""Record of the boot in which the journal was last written."""

from __future__ import annotations

import sqlite3

from carpool.core.model import Micros
from carpool.daemon.journal.writer import Journal

# Keys of the journal's table `meta`; the second one: how far the wall clock was ahead of the monotonic one.
BOOT_ID, WALL_AHEAD = "boot_id", "wall_ahead_us"


def read_boot_id(connection: sqlite3.Connection) -> str | None:
    """Return the recorded boot id; None: the journal is new, or a copy."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (BOOT_ID,)).fetchone()
    return None if row is None else str(row[0])


class BootRecord:
    """``restarted``: whether the machine has restarted since an earlier daemon wrote to the journal."""

    def __init__(self, journal: Journal, boot: str, restarted: bool) -> None:
        self._journal = journal
        self._boot = boot
        self.restarted = restarted

    def settled(self, wall_ahead_us: Micros) -> None:
        """Record this boot, after all that follows from a restart of the machine has been handed to the journal.

        ``wall_ahead_us``: of moments in the journal (`carpool.daemon.journal.moments`); valid in this boot only.
        """
        rows = [(BOOT_ID, self._boot), (WALL_AHEAD, str(wall_ahead_us))]
        self._journal.owe("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
