"""The history of turns: blocks in memory until they are full, then in the journal, coarser with age.

A daemon that is killed loses at most what is in memory: a minute.
"""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from carpool.core.model import DeviceId, LaneId, Micros
from carpool.daemon.journal.history import (
    DAY,
    HOUR,
    MINUTE,
    NOBODY,
    SECOND,
    HistoryRow,
    HistorySeries,
    Level,
    additions,
    spoilt,
    stored_rows,
)
from carpool.daemon.journal.rows import read_only
from carpool.daemon.journal.turn_blocks import CODES, GOES_ON, LaneBins, SpoiltBlock, TurnSpan, pack, unpack
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import monotonic_us, wall_ahead_us
from carpool.facts.fact import Fact, Told, What

#: Turns of a block, each of 25 bytes while it is in memory.
BLOCK_TURNS = 1000
_OPEN = struct.Struct("<QQQB")


class TurnBlock(NamedTuple):
    """Turns of one lane, in order, by the wall clock.  ``owner``: uid of the user whose lane it is, or `NOBODY`."""

    device: DeviceId
    lane: LaneId
    owner: int
    spans: list[TurnSpan]


class TurnAccumulator:
    """The recorder of a lane.  Times are the core's; ``ahead_us`` is how far the wall clock is ahead of it."""

    def __init__(self, device: DeviceId, number: LaneId) -> None:
        self._device = device
        self._number = number
        self._owner = NOBODY
        self._turns = bytearray()
        self._present: Fact | None = None

    @property
    def full(self) -> bool:
        return len(self._turns) >= BLOCK_TURNS * _OPEN.size

    @property
    def idle(self) -> bool:
        """Whether no job has the turn, and no turn is to be written."""
        return self._present is None and not self._turns

    def take(self, turn: Fact) -> None:
        """Take a turn that begins or ends."""
        self._present = turn if turn.end_us is None else None
        if self._owner == NOBODY and turn.owner is not None:
            self._owner = turn.owner
        if turn.end_us is not None:
            self._turns += _OPEN.pack(turn.start_us, turn.lasted_us, turn.job, CODES[turn.how])

    def taken(self, ahead_us: Micros) -> TurnBlock | None:
        """Return the turns that are over, and drop them from memory; None: there are none."""
        spans = list(self._over(ahead_us))
        self._turns = bytearray()
        return self._block(spans) if spans else None

    def present(self, now_us: Micros, ahead_us: Micros) -> TurnBlock:
        """Return a copy of the turns, with the turn that goes on."""
        return self._block([*self._over(ahead_us), *self._going_on(now_us, ahead_us)])

    def _block(self, spans: list[TurnSpan]) -> TurnBlock:
        return TurnBlock(self._device, self._number, self._owner, spans)

    def _over(self, ahead_us: Micros) -> Iterator[TurnSpan]:
        for begin, length, job, cause in _OPEN.iter_unpack(bytes(self._turns)):
            yield TurnSpan(begin + ahead_us, begin + ahead_us + length, job, 1, cause, length)

    def _going_on(self, now_us: Micros, ahead_us: Micros) -> Iterator[TurnSpan]:
        if self._present is not None and self._present.start_us is not None:
            begin, lasted = self._present.start_us + ahead_us, max(0, now_us - self._present.start_us)
            yield TurnSpan(begin, begin + lasted, self._present.job, 1, GOES_ON, lasted)


#: A drift beyond this is followed: following a smaller one would move turns that were shown already.
DRIFT_US: Micros = 10_000


class TurnRecorder:
    """``put`` takes blocks; ``ahead``: what the wall clock is ahead of the core's."""

    def __init__(self, put: Callable[[TurnBlock], None], ahead: Callable[[], Micros] = wall_ahead_us) -> None:
        self._put = put
        self._ahead = ahead
        self._ahead_us = ahead()
        self._lanes: dict[LaneId, TurnAccumulator] = {}

    def take(self, told: Told) -> None:
        """Take what a fold tells, in order."""
        if isinstance(told, Fact) and told.what == What.TURN and told.lane is not None and told.start_us is not None:
            self._look_at_clock()
            lane = self._lanes.get(told.lane)
            if lane is None:
                lane = self._lanes[told.lane] = TurnAccumulator(told.device, told.lane)
            lane.take(told)
            if lane.full:
                self._put_lane(lane)

    def write(self) -> None:
        """Make blocks of all turns that are over."""
        for lane in self._lanes.values():
            self._put_lane(lane)
        self._lanes = {number: lane for number, lane in self._lanes.items() if not lane.idle}

    def present(self, now_us: Micros) -> list[TurnBlock]:
        """Return copies of turns that are in no block yet, with turns that go on: as large as what is in memory."""
        return [lane.present(now_us, self._ahead_us) for lane in self._lanes.values()]

    def _look_at_clock(self) -> None:
        """If the wall clock was set or has drifted, write what happened before with the times it had."""
        ahead = self._ahead()
        if abs(ahead - self._ahead_us) > DRIFT_US:
            self.write()
            self._ahead_us = ahead

    def _put_lane(self, lane: TurnAccumulator) -> None:
        block = lane.taken(self._ahead_us)
        if block is not None:
            self._put(block)


INTERVAL_S = 60.0
ROWS_AT_ONCE = 60  # of which each may have a thousand turns
TURNS = "turns"
Lanes = dict[tuple[DeviceId, LaneId], list[TurnSpan]]
_OLDEST = "SELECT owner, min(begin_us) FROM history WHERE series = ? AND begin_us >= 0 GROUP BY owner"
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
