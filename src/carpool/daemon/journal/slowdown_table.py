"""The slowdown table survives the daemon: the core's table is written whenever a job ends, and every minute."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from itertools import takewhile

from carpool.core.events import PaceKnown
from carpool.core.state.slowdown_table import MOST_PAIRS, Pair
from carpool.daemon.journal.quarantine import sound_rows
from carpool.daemon.journal.row_types import PaceRow
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import wall_ahead_us

INTERVAL_S = 60.0
_WRITE = "INSERT OR REPLACE INTO paces VALUES (?, ?, ?, ?, ?, ?)"
_FORGET = """DELETE FROM paces WHERE (model, kind, beside) IN
  (SELECT model, kind, beside FROM paces ORDER BY measured_us DESC, model, kind, beside LIMIT -1 OFFSET ?)"""


class PaceTable:
    """``known``: what the journal has, which the core is told first.  ``now``: what the core has, newest first."""

    def __init__(
        self,
        journal: Journal,
        known: Iterable[PaceKnown],
        now: Callable[[], Iterable[PaceKnown]],
        most: int = MOST_PAIRS,
    ) -> None:
        self.known = tuple(known)
        self._written = _by_pair(self.known)
        self._journal = journal
        self._now = now
        self._most = most

    async def run(self) -> None:
        """Write every minute: jobs may run for weeks, and the daemon may die at any time."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.write()

    def write(self) -> None:
        """Write the new pairs, which the core names first; of the pairs measured longest ago, remove surplus ones."""
        new = list(takewhile(lambda pace: self._written.get(_pair(pace)) != pace, self._now()))
        if not new:
            return
        self._written |= _by_pair(new)
        if len(self._written) > 2 * self._most:
            self._written = _by_pair(self._now())
        ahead = wall_ahead_us()
        # Device time without a whole iteration gives no mean yet.
        rows = [(*_pair(p), p.total_us, p.iterations, p.measured_us + ahead) for p in new if p.iterations]
        self._journal.owe(_WRITE, rows)
        self._journal.owe(_FORGET, [(self._most,)])


def read_paces(connection: sqlite3.Connection) -> list[PaceKnown]:
    """Read the pairs in the order in which they were last measured, on this boot's clock."""
    ahead = wall_ahead_us()

    def pace_of(row: PaceRow) -> PaceKnown:
        return PaceKnown(row.model, row.kind, row.beside, row.total_us, row.iterations, row.measured_us - ahead)

    return list(sound_rows(connection, "paces", PaceRow, pace_of, "ORDER BY measured_us, model, kind, beside"))


def _pair(pace: PaceKnown) -> Pair:
    return (pace.model, pace.kind, pace.beside)


def _by_pair(paces: Iterable[PaceKnown]) -> dict[Pair, PaceKnown]:
    return {_pair(pace): pace for pace in paces}
