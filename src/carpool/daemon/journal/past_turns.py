"""The history of turns: blocks in memory until they are full, then in the journal, coarser with age.

A daemon that is killed loses at most what is in memory: a minute.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from carpool.core.model import DeviceId, LaneId, Micros
from carpool.daemon.journal.history import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    HistoryRow,
    HistorySeries,
    Level,
    additions,
    read_only,
    spoilt,
    stored_rows,
)
from carpool.daemon.journal.recorded_lane import TurnBlock
from carpool.daemon.journal.turn_blocks import LaneBins, SpoiltBlock, TurnSpan, pack, unpack
from carpool.daemon.journal.turn_recorder import TurnRecorder
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import monotonic_us
from carpool.facts.fact import Told

INTERVAL_S = 60.0
ROWS_AT_ONCE = 60  # of which each may have a thousand turns
TURNS = "turns"
Lanes = dict[tuple[DeviceId, LaneId], list[TurnSpan]]
_OLDEST = "SELECT owner, min(begin_us) FROM history WHERE series = ? GROUP BY owner"
_lane_of = msgspec.json.Decoder(tuple[DeviceId, LaneId]).decode


class TurnQuery(NamedTuple):
    """``owner``: only lanes of this user; ``device``: only lanes of this device; ``bins``: at most so many spans."""

    since_us: Micros
    until_us: Micros
    bins: int
    device: DeviceId | None = None
    owner: int | None = None

    @property
    def width_us(self) -> Micros:
        return max(1, -(-(self.until_us - self.since_us) // self.bins))

    def wants(self, block: TurnBlock) -> bool:
        """Whether the query covers the block."""
        return self.device in (None, block.device) and self.owner in (None, block.owner)


class PastTurns:
    """``path``: the journal's file, which is read beside its writer."""

    def __init__(self, journal: Journal, path: Path) -> None:
        self._journal = journal
        self._path = path
        self._recorder = TurnRecorder(self._put)
        #: For each answer that is being made, the blocks that were in memory when it began and are written since.
        self._late: list[set[HistoryRow]] = []

    def take(self, told: Told) -> None:
        """Take what a fold of everything that is recorded tells, in order."""
        self._recorder.take(told)

    async def run(self) -> None:
        """Write turns every minute."""
        while True:
            self._recorder.write()
            await asyncio.sleep(INTERVAL_S)

    def close(self) -> None:
        """Hand all turns to the journal; the fold has been closed."""
        self._recorder.write()

    async def read(self, asked: TurnQuery) -> tuple[Lanes, Micros | None]:
        """Return spans by lane, and since when anything is kept.  Raises JournalFull, sqlite3.Error."""
        present = [block for block in self._recorder.present(monotonic_us()) if asked.wants(block)]
        late = set[HistoryRow]()
        self._late.append(late)
        try:
            await self._journal.flushed()
            return await asyncio.to_thread(self._read, asked, late, present)
        finally:
            self._late = [each for each in self._late if each is not late]

    def _read(
        self, asked: TurnQuery, late: set[HistoryRow], present: Sequence[TurnBlock]
    ) -> tuple[Lanes, Micros | None]:
        """Do the part of `read` that reads the disk, for a thread."""
        lanes: dict[tuple[DeviceId, LaneId], LaneBins] = {}
        begins = [block.spans[0].begin_us for block in present if block.spans]
        with read_only(self._path) as connection:
            for owner, begin in connection.execute(_OLDEST, (TURNS,)):
                if asked.owner in (None, owner) and isinstance(begin, int):
                    begins.append(begin)
            for block in chain(_stored(connection, asked, late), present):
                bins = LaneBins(asked.since_us, asked.width_us, asked.until_us)
                lanes.setdefault((block.device, block.lane), bins).add(block.spans)
        found = {place: spans for place, bins in sorted(lanes.items()) if (spans := bins.spans())}
        return found, min(begins, default=None)

    def _put(self, block: TurnBlock) -> None:
        row = row_of(block)
        for late in self._late:
            late.add(row)
        self._journal.owe(*additions(TURNS, [row]), droppable=True)


def row_of(block: TurnBlock) -> HistoryRow:
    """Return the row of a block of exact turns."""
    begin, end = block.spans[0].begin_us, block.spans[-1].end_us
    return HistoryRow(
        0, _key(block.device, block.lane), block.owner, 0, begin, end, pack(block.spans, begin, merged=False)
    )


def kept_turns(most_bytes: int, keep_us: Micros) -> HistorySeries:
    """Return the series of turns: exact for an hour, then an entry a second for a day, then one a minute."""
    levels = (Level(HOUR, SECOND, HOUR), Level(DAY, MINUTE, DAY))
    return HistorySeries(TURNS, keep_us, levels, _merge, ordered=True, rows_at_once=ROWS_AT_ONCE, most_bytes=most_bytes)


def _stored(connection: sqlite3.Connection, asked: TurnQuery, late: set[HistoryRow]) -> Iterator[TurnBlock]:
    """Yield the blocks of the journal, in the order in which they were recorded, without the ``late`` ones."""
    beginning = "" if asked.device is None else _key(asked.device, 0).rpartition("0")[0]
    for row in stored_rows(connection, TURNS, asked.since_us, asked.until_us, owner=asked.owner):
        wanted = row.key.startswith(beginning) and row._replace(number=0) not in late
        if wanted and (block := _block(row)) is not None:
            yield block


def _key(device: DeviceId, lane: LaneId) -> str:
    return msgspec.json.encode((device, lane)).decode()


def _block(row: HistoryRow) -> TurnBlock | None:
    """Return the turns of a row; None: the row makes no sense, and is left out."""
    try:
        device, lane = _lane_of(row.key)
        return TurnBlock(device, lane, row.owner, unpack(row.value, row.begin_us, merged=row.step_us > 0))
    except (msgspec.MsgspecError, SpoiltBlock):
        spoilt(row.number)
        return None


def _merge(rows: Sequence[HistoryRow], level: Level) -> bytes | None:
    """Return one entry for each step of the rows' turns."""
    bins = LaneBins(0, level.step_us)
    for row in rows:
        if (block := _block(row)) is not None:
            bins.add(block.spans)
    spans = bins.spans()
    return pack(spans, min(row.begin_us for row in rows), merged=True) if spans else None
