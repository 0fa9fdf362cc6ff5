"""How long turns are kept, and how exactly: the older, the coarser, and never more than a number of bytes.

If the quota is exceeded, history of the user with most is reduced first: no user's turns cost another user's history.
Plans are made in threads; each step changes a few rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from carpool.core.model import Micros
from carpool.daemon.journal.turn_bins import LaneBins
from carpool.daemon.journal.turn_blocks import pack
from carpool.daemon.journal.turn_table import COLUMNS, TurnRow, sound

SECOND: Micros = 1_000_000
HOUR: Micros = 3600 * SECOND
DAY: Micros = 24 * HOUR
ROWS_AT_ONCE = 60
ROW_BYTES = 120  # of a row beside its data, with its entry in the index

MERGE = "UPDATE turns SET step_us = ?, begin_us = ?, end_us = ?, data = ?, first = ? WHERE number = ?"
DELETE = "DELETE FROM turns WHERE number = ?"
_NUMBERS = ("lane", "owner", "step_us", "begin_us", "end_us")
_UNSOUND = " OR ".join(f"typeof({name}) != 'integer'" for name in _NUMBERS)
_SPOILT = f"SELECT number FROM turns WHERE typeof(data) != 'blob' OR typeof(device) != 'text' OR {_UNSOUND} LIMIT ?"
_OLD = "SELECT number FROM turns WHERE end_us < ? ORDER BY end_us LIMIT ?"
_FINE = f"""SELECT {COLUMNS} FROM turns WHERE end_us < ? AND step_us < ? ORDER BY device, lane, number LIMIT ?"""
_SIZES = f"SELECT owner, sum(length(data) + {ROW_BYTES}) FROM turns GROUP BY owner ORDER BY 2 DESC, owner"
_OF_OWNER = f"SELECT {COLUMNS} FROM turns WHERE owner = ? ORDER BY step_us, number LIMIT ?"


class Level(NamedTuple):
    """Turns older than ``age_us`` have one entry per ``step_us`` and lane, in one row for ``chunk_us``."""

    age_us: Micros
    step_us: Micros
    chunk_us: Micros


LEVELS = (Level(HOUR, SECOND, HOUR), Level(DAY, 60 * SECOND, DAY))


@dataclass(slots=True)
class TurnPlan:
    """Rows for `MERGE` and for `DELETE`; ``more``: another plan is to follow."""

    merge: list[tuple[object, ...]] = field(default_factory=list)
    delete: list[tuple[int]] = field(default_factory=list)

    @property
    def more(self) -> bool:
        return bool(self.merge or self.delete)


def plan(connection: sqlite3.Connection, now_us: Micros, most_bytes: int, keep_us: Micros) -> TurnPlan:
    """Return the next step; an empty plan: nothing is to be done.  ``now_us``: the wall clock."""
    found = connection.execute(_SPOILT, (ROWS_AT_ONCE,)).fetchall()
    found += connection.execute(_OLD, (now_us - keep_us, ROWS_AT_ONCE)).fetchall()
    if found:
        return TurnPlan(delete=list(dict.fromkeys(found)))
    for level in reversed(LEVELS):
        if (coarser := _coarser(connection, level, now_us)).more:
            return coarser
    return _within(connection, most_bytes)


def _coarser(connection: sqlite3.Connection, level: Level, now_us: Micros) -> TurnPlan:
    """Plan to merge chunks that are old enough as a whole, so that each is merged once."""
    before = (now_us - level.age_us) // level.chunk_us * level.chunk_us
    rows = sound(connection.execute(_FINE, (before, level.step_us, ROWS_AT_ONCE)))
    return _merged(_chunks(rows, level), level)


def _within(connection: sqlite3.Connection, most_bytes: int) -> TurnPlan:
    """Plan for the user with most history: the oldest exact turns become coarser first; then the oldest go."""
    sizes = connection.execute(_SIZES).fetchall()
    excess = sum(size for _, size in sizes) - most_bytes
    if excess <= 0:
        return TurnPlan()
    rows = list(_worth(sound(connection.execute(_OF_OWNER, (sizes[0][0], ROWS_AT_ONCE))), excess))
    level = next((each for each in LEVELS if each.step_us > rows[0].step_us), None)
    if level is None:
        return TurnPlan(delete=[(row.number,) for row in rows])
    return _merged([[row] for row in rows if row.step_us == rows[0].step_us], level)


def _worth(rows: Iterable[TurnRow], size: int) -> Iterator[TurnRow]:
    """Yield rows until they have ``size`` bytes together."""
    for row in rows:
        yield row
        size -= len(row.data) + ROW_BYTES
        if size <= 0:
            return


def _merged(groups: Iterable[Sequence[TurnRow]], level: Level) -> TurnPlan:
    found = TurnPlan()
    for rows in groups:
        _merge(found, rows, level)
    return found


def _chunks(rows: Iterable[TurnRow], level: Level) -> list[list[TurnRow]]:
    """Group rows of a lane that follow each other; after a restart the number may be of another user's lane."""

    def chunk(row: TurnRow) -> tuple[object, ...]:
        return row.device, row.lane, row.owner, row.begin_us // level.chunk_us

    return [list(group) for _, group in groupby(rows, chunk)]


def _merge(found: TurnPlan, rows: Sequence[TurnRow], level: Level) -> None:
    bins = LaneBins(0, level.step_us)
    for row in rows:
        bins.add(row.spans())
    spans = bins.spans()
    if not spans:
        found.delete.extend((row.number,) for row in rows)
        return
    begin, end = min(row.begin_us for row in rows), max(row.end_us for row in rows)
    data = pack(spans, begin, merged=True)
    found.merge.append((level.step_us, begin, end, data, rows[0].number, rows[-1].number))
