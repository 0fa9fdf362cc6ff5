"""The use of each user survives the daemon: written when a job ends, every minute, and when the daemon ends."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from carpool.core.events import UseKnown
from carpool.core.model import Micros
from carpool.daemon.journal.quarantine import sound_rows
from carpool.daemon.journal.row_types import MetaRow
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import wall_ahead_us

INTERVAL_S = 60.0
KEY = "user_use"  # in the journal's table `meta`
_WRITE = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
#: uid, device time in microseconds, and when it counted so, on the wall clock.
Stored = tuple[Annotated[int, Meta(ge=0)], Annotated[Micros, Meta(ge=0)], Micros]


class UseRecord:
    """``known``: what the journal has, which the core is told first.  ``now``: what the core has."""

    def __init__(self, journal: Journal, known: Iterable[UseKnown], now: Callable[[], Iterable[UseKnown]]) -> None:
        self.known = tuple(known)
        self._journal = journal
        self._now = now
        self._written: dict[int, Micros] | None = None  # None yet: the journal's figures may be of another half-life

    async def run(self) -> None:
        """Write every minute: jobs may run for weeks, and the daemon may die at any time."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.write()

    def write(self) -> None:
        """Write the use of all users, unless it has neither grown nor decayed since the last time."""
        ahead, uses = wall_ahead_us(), list(self._now())
        used = {use.owner: use.used_us for use in uses}
        if used == self._written:
            return
        self._written = used
        rows: list[Stored] = [(use.owner, use.used_us, use.at_us + ahead) for use in uses]
        self._journal.owe(_WRITE, [(KEY, msgspec.json.encode(rows).decode())])


def read_uses(connection: sqlite3.Connection) -> list[UseKnown]:
    """Read the use of all users, on this boot's clock."""
    stored = next(sound_rows(connection, "meta", MetaRow, _stored, f"WHERE key = '{KEY}'"), [])
    ahead = wall_ahead_us()
    return [UseKnown(owner, used_us, wall - ahead) for owner, used_us, wall in stored]


def _stored(row: MetaRow) -> list[Stored]:
    return msgspec.json.decode(row.value, type=list[Stored])
