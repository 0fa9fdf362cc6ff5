"""The past, in one table: turns, telemetry of devices, use by users, and figures of the core.

A row has a series, a key in it, the user whose history it is, a stretch of time, and a value.  Rows are only added: a
reader adds up the rows of one bin, and `HistoryKeeper` makes one row of several once they are old enough, in one
transaction.  What a series keeps is bounded by age, and by bytes or rows; if a series has too many bytes, the history
of the user with most is reduced first, so no user's rows cost another user's history.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from carpool.core.model import Micros
from carpool.daemon.journal.rows import LARGEST_NUMBER, Amount, HistoryColumns, UserOrNobody, read_only, sound_rows
from carpool.daemon.journal.writer import Journal, Statement
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import JournalFull

log = logging.getLogger(__name__)
SECOND: Micros = 1_000_000
MINUTE: Micros = 60 * SECOND
HOUR: Micros = 60 * MINUTE
DAY: Micros = 24 * HOUR
FOREVER: Micros = LARGEST_NUMBER
NOBODY = -1  # no user's uid
INTERVAL_S = 60.0
ROW_BYTES = 120  # of a row beside its value, with its entry in the index
TABLES = """
CREATE TABLE IF NOT EXISTS history (
  number INTEGER PRIMARY KEY,  -- in the order in which rows were recorded
  series TEXT NOT NULL,
  key TEXT NOT NULL,           -- what of the series: a device, a lane, an outcome, a pair of commands
  owner INTEGER NOT NULL,      -- uid of the user whose history it is; -1: no user's
  step_us INTEGER NOT NULL,    -- 0: exact; otherwise the value has one entry for so much time
  begin_us INTEGER NOT NULL,   -- wall clock
  end_us INTEGER NOT NULL,
  value BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS history_bins ON history (series, key, owner, step_us, end_us);
"""
_COLUMNS = "number, key, owner, step_us, begin_us, end_us, value"
_ADD = f"INSERT INTO history (series, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM history WHERE number = ?"
_REPLACED = "DELETE FROM history WHERE series = ? AND key = ? AND owner = ?"
_SELECT = f"""SELECT {_COLUMNS} FROM history WHERE series = ? AND end_us >= ? AND begin_us < ?
  AND (? IS NULL OR key = ?) AND (? IS NULL OR owner = ?) ORDER BY number"""
_OLD = "SELECT number FROM history WHERE series = ? AND end_us < ? LIMIT ?"
_SURPLUS = "SELECT number FROM history WHERE series = ? ORDER BY end_us DESC, number DESC LIMIT ? OFFSET ?"
_FINE = f"""SELECT {_COLUMNS} FROM history WHERE series = ? AND step_us < ? AND end_us <= ?
  ORDER BY key, number LIMIT ?"""
_SAME = f"""SELECT {_COLUMNS} FROM history WHERE series = ? AND key = ? AND owner = ? AND step_us = ?
  AND begin_us >= ? AND begin_us < ?"""
_SIZES = f"""SELECT owner, sum(coalesce(length(value), 0) + {ROW_BYTES}) FROM history WHERE series = ?
  GROUP BY owner ORDER BY 2 DESC, owner"""
_OF_OWNER = f"SELECT {_COLUMNS} FROM history WHERE series = ? AND owner IS ? ORDER BY step_us, number LIMIT ?"
_UNSOUND = f"""WHERE typeof(series) != 'text' OR typeof(key) != 'text' OR typeof(value) != 'blob'
  OR typeof(owner) != 'integer' OR owner NOT BETWEEN {NOBODY} AND {2**32 - 1}
  OR typeof(step_us) != 'integer' OR typeof(begin_us) != 'integer' OR typeof(end_us) != 'integer'
  OR min(step_us, begin_us, end_us) < 0 OR max(number, step_us, begin_us, end_us) > {LARGEST_NUMBER} OR number < 1"""


class HistoryRow(NamedTuple):
    """A row whose columns have the right types and bounds.  ``number``: 0 before the row is recorded."""

    number: Amount
    key: str
    owner: UserOrNobody
    step_us: Amount
    begin_us: Amount
    end_us: Amount
    value: bytes


class Level(NamedTuple):
    """Rows older than ``age_us`` have one entry per ``step_us``, in one row for ``chunk_us``."""

    age_us: Micros
    step_us: Micros
    chunk_us: Micros


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """One kind of history, and how long and how exactly it is kept.

    ``merge`` makes the value of one row for several; None: there is nothing to keep in them.  ``ordered``: the order in
    which rows of a key were recorded counts, so only rows that follow each other are merged.
    """

    name: str
    keep_us: Micros
    levels: tuple[Level, ...] = ()
    merge: Callable[[Sequence[HistoryRow], Level], bytes | None] = lambda rows, level: None
    ordered: bool = False
    rows_at_once: int = 1000
    most_bytes: int | None = None
    most_rows: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """Numbers of rows to be deleted, and rows that take their place, in one transaction."""

    delete: list[int] = field(default_factory=list)
    add: list[HistoryRow] = field(default_factory=list)


def additions(series: str, rows: Iterable[HistoryRow]) -> Statement:
    """Return the statement that adds rows."""
    return _ADD, [(series, row.number or None, *row[1:]) for row in rows]


def replacements(series: str, rows: Sequence[HistoryRow]) -> list[Statement]:
    """Return the statements that put rows in the place of those with the same keys and owners."""
    return [(_REPLACED, [(series, row.key, row.owner) for row in rows]), additions(series, rows)]


def set_unsound_aside(connection: sqlite3.Connection) -> None:
    """Set aside the rows whose columns make no sense; values are checked when they are read."""
    list(sound_rows(connection, "history", HistoryColumns, lambda row: row, _UNSOUND))


def stored_rows(
    connection: sqlite3.Connection,
    series: str,
    since_us: Micros = 0,
    until_us: Micros = FOREVER,
    key: str | None = None,
    owner: int | None = None,
) -> Iterator[HistoryRow]:
    """Yield the rows that touch a stretch of time, in the order in which they were recorded."""
    return sound(connection.execute(_SELECT, (series, since_us, until_us, key, key, owner, owner)))


def sound(rows: Iterable[tuple[object, ...]]) -> Iterator[HistoryRow]:
    """Yield the rows that can be read, and leave the others out."""
    for row in rows:
        try:
            yield msgspec.convert(row, HistoryRow)
        except msgspec.ValidationError:
            spoilt(row[0])


def spoilt(number: object) -> None:
    """Say that a row is left out."""
    log.warning("row %s of the journal's history is invalid, and is left out", number)


class HistoryKeeper:
    """Makes old rows coarser, and removes what is too much.  ``path``: the journal's file, read beside its writer."""

    def __init__(self, journal: Journal, path: Path, series: Sequence[HistorySeries]) -> None:
        self._journal = journal
        self._path = path
        self._series = series

    async def run(self) -> None:
        """Keep house every minute; after an error, try again a minute later."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.keep(wall_us())
            except (JournalFull, sqlite3.Error) as error:
                log.warning("cannot make old history coarser: %s", error)

    async def keep(self, now_us: Micros) -> None:
        """Do all that is to be done.  Raises JournalFull, sqlite3.Error."""
        await self._journal.flushed()
        for series in self._series:
            while (step := await asyncio.to_thread(self._step, series, now_us)).delete:
                numbers = [(number,) for number in step.delete]
                await self._journal.durable(_DELETE, *numbers, also=[additions(series.name, step.add)])

    def _step(self, series: HistorySeries, now_us: Micros) -> HistoryStep:
        with read_only(self._path) as connection:
            return next_step(connection, series, now_us)


def next_step(connection: sqlite3.Connection, series: HistorySeries, now_us: Micros) -> HistoryStep:
    """Return what is to be done next, a few rows; an empty step: nothing is.  ``now_us``: the wall clock."""
    found = connection.execute(_OLD, (series.name, now_us - series.keep_us, series.rows_at_once)).fetchall()
    if series.most_rows is not None:
        found += connection.execute(_SURPLUS, (series.name, series.rows_at_once, series.most_rows)).fetchall()
    if found:
        return HistoryStep([number for (number,) in dict.fromkeys(found)])
    for level in reversed(series.levels):
        if (coarser := _coarser(connection, series, level, now_us)).delete:
            return coarser
    return _within(connection, series)


def _fetched(connection: sqlite3.Connection, sql: str, *values: object) -> tuple[list[HistoryRow], HistoryStep]:
    """Return the rows that can be read, and the step that deletes the others."""
    rows = connection.execute(sql, values).fetchall()
    readable = list(sound(rows))
    return readable, HistoryStep(list({row[0] for row in rows} - {row.number for row in readable}))


def _coarser(connection: sqlite3.Connection, series: HistorySeries, level: Level, now_us: Micros) -> HistoryStep:
    """Merge chunks that are old enough as a whole."""
    before = (now_us - level.age_us) // level.chunk_us * level.chunk_us
    rows, step = _fetched(connection, _FINE, series.name, level.step_us, before, series.rows_at_once)

    def chunk(row: HistoryRow) -> tuple[str, int, Micros]:
        return row.key, row.owner, row.begin_us // level.chunk_us * level.chunk_us

    for place, group in groupby(rows if series.ordered else sorted(rows, key=chunk), chunk):
        before_it = () if series.ordered else _merged_before(connection, series, level, place)
        _merge(step, series, level, [*before_it, *group])
    return step


def _merged_before(
    connection: sqlite3.Connection, series: HistorySeries, level: Level, place: tuple[str, int, Micros]
) -> Iterator[HistoryRow]:
    """Yield the rows that were merged before of a chunk."""
    key, owner, begin = place
    return sound(connection.execute(_SAME, (series.name, key, owner, level.step_us, begin, begin + level.chunk_us)))


def _within(connection: sqlite3.Connection, series: HistorySeries) -> HistoryStep:
    """Reduce the user with most history: the oldest exact rows become coarser first; then the oldest go."""
    if series.most_bytes is None:
        return HistoryStep()
    sizes = connection.execute(_SIZES, (series.name,)).fetchall()
    excess = sum(size for _, size in sizes) - series.most_bytes
    if excess <= 0:
        return HistoryStep()
    rows, step = _fetched(connection, _OF_OWNER, series.name, sizes[0][0], series.rows_at_once)
    if step.delete or not rows:
        return step
    rows = list(_worth(rows, excess))
    level = next((each for each in series.levels if each.step_us > rows[0].step_us), None)
    if level is None:
        return HistoryStep([row.number for row in rows])
    for row in rows:
        if row.step_us == rows[0].step_us:
            _merge(step, series, level, [row])
    return step


def _worth(rows: Iterable[HistoryRow], size: int) -> Iterator[HistoryRow]:
    """Yield rows until they have ``size`` bytes together."""
    for row in rows:
        yield row
        size -= len(row.value) + ROW_BYTES
        if size <= 0:
            return


def _merge(step: HistoryStep, series: HistorySeries, level: Level, rows: Sequence[HistoryRow]) -> None:
    """Put one row in the place of several."""
    step.delete.extend(row.number for row in rows)
    value = series.merge(rows, level)
    if value is not None:
        begin, end = min(row.begin_us for row in rows), max(row.end_us for row in rows)
        number = max(row.number for row in rows)
        step.add.append(HistoryRow(number, rows[0].key, rows[0].owner, level.step_us, begin, end, value))
