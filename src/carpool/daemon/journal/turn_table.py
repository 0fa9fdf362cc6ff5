"""The journal's table `turns`: its rows, and reading them beside the journal's writer."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from carpool.core.model import DeviceId, LaneId, Micros
from carpool.daemon.journal.recorded_lane import TurnBlock
from carpool.daemon.journal.row_types import LARGEST_NUMBER
from carpool.daemon.journal.turn_blocks import SpoiltBlock, TurnSpan, pack, unpack

log = logging.getLogger(__name__)
#: Rows that a row replaces are deleted in the same statement, so that no turn is there twice, or not at all.
TABLES = """
CREATE TABLE IF NOT EXISTS turns (  -- who had which lane
  number INTEGER PRIMARY KEY,  -- in the order in which they were recorded
  first INTEGER NOT NULL,      -- number of the first of the rows that were merged into this one
  device TEXT NOT NULL,
  lane INTEGER NOT NULL,
  owner INTEGER NOT NULL,      -- uid of the user whose lane it is; -1: not known
  step_us INTEGER NOT NULL,    -- 0: every turn; otherwise one entry for so much time
  begin_us INTEGER NOT NULL,   -- wall clock
  end_us INTEGER NOT NULL,
  data BLOB NOT NULL           -- see carpool.daemon.journal.turn_blocks
);
CREATE INDEX IF NOT EXISTS turns_by_end ON turns (end_us);
CREATE TRIGGER IF NOT EXISTS turns_merged AFTER UPDATE OF first ON turns BEGIN
  DELETE FROM turns WHERE number >= NEW.first AND number < NEW.number AND device = NEW.device AND lane = NEW.lane
    AND owner = NEW.owner AND begin_us >= NEW.begin_us AND end_us <= NEW.end_us AND step_us < NEW.step_us;
END;
"""
COLUMNS = "number, device, lane, owner, step_us, begin_us, end_us, data"
INSERT = f"INSERT INTO turns (first, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LAST = "SELECT coalesce(max(number), 0) FROM turns"
_SELECT = f"""SELECT {COLUMNS} FROM turns WHERE end_us >= ? AND begin_us < ? AND number < ?
  AND (? IS NULL OR device = ?) AND (? IS NULL OR owner = ?) ORDER BY number"""
_OLDEST = "SELECT min(begin_us) FROM turns WHERE ? IS NULL OR owner = ?"


class TurnRow(NamedTuple):
    """A row whose columns have the right types."""

    number: int
    device: DeviceId
    lane: LaneId
    owner: int
    step_us: Micros
    begin_us: Micros
    end_us: Micros
    data: bytes

    def spans(self) -> list[TurnSpan]:
        """Return the row's spans; none if the row cannot be decoded."""
        try:
            return unpack(self.data, self.begin_us, merged=self.step_us > 0)
        except SpoiltBlock as error:
            log.warning("row %d of the turns in the journal makes no sense, and is left out: %s", self.number, error)
            return []


def last_number(connection: sqlite3.Connection) -> int:
    """Return the number of the last row; 0: there is none.  Rows with impossible numbers are deleted."""
    connection.execute("DELETE FROM turns WHERE number > ?", (LARGEST_NUMBER,))
    return int(connection.execute(_LAST).fetchone()[0])


def row_of(block: TurnBlock, number: int) -> tuple[object, ...]:
    """Return the values of `INSERT` for a block."""
    begin, end = block.spans[0].begin_us, block.spans[-1].end_us
    place = (block.device, block.lane, block.owner)
    return number, number, *place, 0, begin, end, pack(block.spans, begin, merged=False)


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the journal for reading, beside the daemon's writer.  Raises sqlite3.Error."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        yield connection


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


def stored(connection: sqlite3.Connection, asked: TurnQuery, before: int) -> Iterator[TurnBlock]:
    """Yield the blocks of rows with numbers below ``before``, in order."""
    places = (asked.device, asked.device, asked.owner, asked.owner)
    for row in sound(connection.execute(_SELECT, (asked.since_us, asked.until_us, before, *places))):
        yield TurnBlock(row.device, row.lane, row.owner, row.spans())


def oldest(connection: sqlite3.Connection, asked: TurnQuery) -> Micros | None:
    """Return since when anything is kept, of any device; None: nothing is kept."""
    found = connection.execute(_OLDEST, (asked.owner, asked.owner)).fetchone()[0]
    return found if isinstance(found, int) else None


def sound(rows: Iterable[tuple[object, ...]]) -> Iterator[TurnRow]:
    """Yield the rows that can be read, and leave the others out."""
    for number, device, lane, owner, step, begin, end, data in rows:
        numbers = (lane, owner, step, begin, end)
        if isinstance(device, str) and isinstance(data, bytes) and all(isinstance(each, int) for each in numbers):
            yield TurnRow(number, device, lane, owner, step, begin, end, data)  # type: ignore[arg-type]
        else:
            log.warning("row %s of the turns in the journal makes no sense, and is left out", number)
