"""The history of turns: blocks in memory until they are full, then in the journal, coarser with age.

A daemon that is killed loses at most what is in memory: a minute.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from carpool.core.model import DeviceId, LaneId, Micros
from carpool.daemon.journal.recorded_lane import TurnBlock
from carpool.daemon.journal.turn_bins import LaneBins
from carpool.daemon.journal.turn_blocks import TurnSpan
from carpool.daemon.journal.turn_keeping import DELETE, MERGE, TurnPlan, plan
from carpool.daemon.journal.turn_recorder import TurnRecorder
from carpool.daemon.journal.turn_table import INSERT, TurnQuery, oldest, read_only, row_of, stored
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import monotonic_us, wall_us
from carpool.daemon.system.errors import JournalFull
from carpool.facts.fact import Told

log = logging.getLogger(__name__)
INTERVAL_S = 60.0
Lanes = dict[tuple[DeviceId, LaneId], list[TurnSpan]]


class PastTurns:
    """``path``: the journal's file; ``last``: number of the last row; ``most_bytes``, ``keep_us``: what is kept."""

    def __init__(
        self,
        journal: Journal,
        path: Path,
        last: int,
        most_bytes: int,
        keep_us: Micros,
    ) -> None:
        self._journal = journal
        self._path = path
        self._next = last + 1
        self._most_bytes = most_bytes
        self._keep_us = keep_us
        self._recorder = TurnRecorder(self._put)

    def take(self, told: Told) -> None:
        """Take all facts of this daemon, in order."""
        self._recorder.take(told)

    async def run(self) -> None:
        """Write turns, and make old ones coarser, every minute; after an error, try again a minute later."""
        while True:
            self._recorder.write()
            try:
                await self.keep(wall_us())
            except (JournalFull, sqlite3.Error) as error:
                log.warning("cannot make old turns coarser: %s", error)
            await asyncio.sleep(INTERVAL_S)

    async def keep(self, now_us: Micros) -> None:
        """Make old turns coarser, and remove what is too much.  Raises JournalFull, sqlite3.Error."""
        await self._journal.flushed()
        while (step := await asyncio.to_thread(self._plan, now_us)).more:
            await asyncio.gather(self._journal.durable(MERGE, *step.merge), self._journal.durable(DELETE, *step.delete))

    def close(self) -> None:
        """Hand all turns to the journal."""
        self._recorder.write()

    async def read(self, asked: TurnQuery) -> tuple[Lanes, Micros | None]:
        """Return spans by lane, and since when anything is kept.  Raises JournalFull, sqlite3.Error."""
        present = [block for block in self._recorder.present(monotonic_us()) if asked.wants(block)]
        before = self._next  # rows from here on are among ``present``
        await self._journal.flushed()
        return await asyncio.to_thread(self._read, asked, before, present)

    def _read(self, asked: TurnQuery, before: int, present: Sequence[TurnBlock]) -> tuple[Lanes, Micros | None]:
        """Do the part of `read` that reads the disk, for a thread."""
        lanes: dict[tuple[DeviceId, LaneId], LaneBins] = {}

        def add(block: TurnBlock) -> None:
            place = block.device, block.lane
            if place not in lanes:
                lanes[place] = LaneBins(asked.since_us, asked.width_us, asked.until_us)
            lanes[place].add(block.spans)

        with read_only(self._path) as connection:
            begins = [oldest(connection, asked)]
            for block in stored(connection, asked, before):
                add(block)
        for block in present:
            add(block)
        begins += [block.spans[0].begin_us for block in present if block.spans]
        found = {place: spans for place, bins in sorted(lanes.items()) if (spans := bins.spans())}
        return found, min((begin for begin in begins if begin is not None), default=None)

    def _put(self, block: TurnBlock) -> None:
        self._journal.owe(INSERT, [row_of(block, self._next)], droppable=True)
        self._next += 1

    def _plan(self, now_us: Micros) -> TurnPlan:
        with read_only(self._path) as connection:
            return plan(connection, now_us, self._most_bytes, self._keep_us)
