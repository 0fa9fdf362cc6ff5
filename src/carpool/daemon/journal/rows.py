"""Rows of the journal: the types of their columns, and setting aside the rows that cannot be read.

No such row keeps the daemon from starting.  A row counts if each of its columns is what the table says.  Any other row
is written down as text, without the environment that it may have, and leaves its table in the same transaction.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from carpool.core.model import JobPhase, Outcome
from carpool.daemon.system.clock import wall_us

log = logging.getLogger(__name__)
#: Numbers of jobs are exact in every program that reads JSON.
LARGEST_NUMBER = 2**53
Number = Annotated[int, Meta(ge=1, le=LARGEST_NUMBER)]
Count = Annotated[int, Meta(ge=0)]
UserId = Annotated[int, Meta(ge=0, lt=2**32)]
UserOrNobody = Annotated[int, Meta(ge=-1, lt=2**32)]
Amount = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]


class JobRow(msgspec.Struct, frozen=True):
    """A row of the table `jobs`."""

    id: Number
    owner: UserId
    gid: UserId
    spec: str
    env: str
    estimate: str | None
    submitted_us: Count
    cancelled: Count
    phase: JobPhase
    device: str | None
    outcome: Outcome | None
    exit_code: int | None
    signal: int | None
    reason_code: str | None
    reason_text: str | None
    persistent_bytes: Count
    ephemeral_bytes: Count
    iterations: Count
    device_us: Count
    switches: Count
    residue_bytes: Count
    started_us: Count | None
    ended_us: Count | None
    out_bytes: Count
    out_us: Count
    in_bytes: Count
    in_us: Count


class AttemptRow(msgspec.Struct, frozen=True):
    """A row of the table `attempts`."""

    job: Number
    attempt: Number
    last: Annotated[int, Meta(ge=0, le=1)]
    device: str | None
    started_us: Count | None
    ended_us: Count
    exit_code: int | None
    signal: int | None
    out_of_memory: Count
    outgrown_bytes: Count
    reason: str
    persistent_bytes: Count
    ephemeral_bytes: Count
    estimate: str | None
    log: str


class RunRow(msgspec.Struct, frozen=True):
    """A row of the table `runs`."""

    command_key: str
    ended_us: Count
    persistent_bytes: Count
    ephemeral_bytes: Count
    iterations: Count
    iteration_us: Count | None


class PlacementOfJob(msgspec.Struct, frozen=True):
    """A row of the table `placements`."""

    job: Number
    devices: str


class HistoryColumns(msgspec.Struct, frozen=True):
    """A row of the table `history`."""

    number: Number
    series: str
    key: str
    owner: UserOrNobody
    step_us: Amount
    begin_us: Amount
    end_us: Amount
    value: bytes


class ModelRow(msgspec.Struct, frozen=True):
    """A row of the table `models`."""

    owner: UserId
    name: str
    spec: str
    env: str
    added_us: Count


class NoticeRow(msgspec.Struct, frozen=True):
    """A row of the table `notices`."""

    job: Number
    attempt: Count
    event: str
    place: Count
    notice: str
    state: str
    tries: Count
    text: str


class MetaRow(msgspec.Struct, frozen=True):
    """A row of the table `meta`."""

    key: str
    value: str


class EventNumber(msgspec.Struct, frozen=True):
    """The column of the table `events` that the daemon reads at its start."""

    seq: Number


TABLES = """
CREATE TABLE IF NOT EXISTS quarantine (  -- rows that could not be read
  number INTEGER PRIMARY KEY,
  found_us INTEGER NOT NULL,   -- wall clock
  source TEXT NOT NULL,        -- the table that the row was in
  job INTEGER,                 -- the job that it is about, where that is known
  reason TEXT NOT NULL,
  data TEXT NOT NULL           -- the row as JSON, without environments
);
"""
PUT_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
#: Columns that are never written down, reported or copied.
SECRET = frozenset({"env", "notice"})
_LONGEST = 4096  # characters of a column that are kept: submissions may have millions
_INSERT = "INSERT INTO quarantine (found_us, source, job, reason, data) VALUES (?, ?, ?, ?, ?)"

Raw = dict[str, object]
R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")


class Unreadable(ValueError):
    """The row is not what its table says; the text is for people."""


def sound_rows(
    connection: sqlite3.Connection,
    table: str,
    kind: type[R],
    make: Callable[[R], T],
    rest: str = "",
    repaired: Callable[[Raw], Raw | None] = lambda row: None,
) -> Iterator[T]:
    """Yield what ``make`` returns for each row of a table, and set aside the rows that cannot be read.

    ``kind``: a record whose fields are columns; ``make`` raises ValueError or MsgspecError; ``rest``: WHERE and ORDER
    BY; ``repaired`` returns another row for one that cannot be read, or None.
    """
    columns = [field.name for field in msgspec.structs.fields(kind)]
    keys = _keys(connection, table)
    for values in _fetched(connection, f"SELECT {', '.join([*keys, *columns])} FROM {table} {rest}"):
        key = dict(zip(keys, values, strict=False))
        row = dict(zip(columns, values[len(keys) :], strict=True))
        try:
            yield _made(kind, make, row)
        except Unreadable as error:
            _set_aside(connection, table, key, row, str(error))
            better = repaired(row)
            if better is not None and (made := _try(kind, make, better)) is not None:
                _put(connection, table, better)
                yield made


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the journal for reading while the daemon writes it.  Raises sqlite3.Error."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.text_factory = lambda data: data.decode(errors="replace")
        yield connection


@contextmanager
def in_one_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one transaction: all that is set aside in it is written, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def quarantined_jobs(connection: sqlite3.Connection) -> set[int]:
    """Return the numbers of the jobs whose own rows were set aside."""
    rows = connection.execute("SELECT job FROM quarantine WHERE source = 'jobs' AND typeof(job) = 'integer'")
    return {job for (job,) in rows}


def _fetched(connection: sqlite3.Connection, sql: str) -> list[tuple[object, ...]]:
    """Return all rows, also texts that are not UTF-8: their bytes become lone surrogates, which are refused later."""
    before, connection.text_factory = connection.text_factory, lambda data: data.decode(errors="surrogateescape")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.text_factory = before


def _made(kind: type[R], make: Callable[[R], T], row: Raw) -> T:
    """Return what ``make`` returns for a row.  Raises Unreadable."""
    try:
        for value in row.values():
            if isinstance(value, str):
                value.encode()
        return make(msgspec.convert(row, kind))
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(str(error)) from None


def _try(kind: type[R], make: Callable[[R], T], row: Raw) -> T | None:
    try:
        return _made(kind, make, row)
    except Unreadable:
        return None


def _keys(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns that name a row."""
    found = connection.execute(f"SELECT name FROM pragma_table_info('{table}') WHERE pk > 0 ORDER BY pk")
    return [name for (name,) in found] or ["rowid"]


def _set_aside(
    connection: sqlite3.Connection, table: str, keys: Mapping[str, object], row: Mapping[str, object], reason: str
) -> None:
    whole = {**keys, **row}
    job = whole.get("id") if table == "jobs" else whole.get("job")
    log.error("row %s of the journal's table %s is set aside: %s", ascii(dict(keys)), table, ascii(reason))
    values = (wall_us(), table, job if isinstance(job, int) else None, ascii(reason)[1:-1], as_text(whole))
    connection.execute(_INSERT, values)
    where = " AND ".join(f"{name} IS {'CAST(? AS TEXT)' if isinstance(keys[name], str) else '?'}" for name in keys)
    connection.execute(f"DELETE FROM {table} WHERE {where}", [_bytes(value) for value in keys.values()])


def _put(connection: sqlite3.Connection, table: str, row: Raw) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def as_text(row: Mapping[str, object]) -> str:
    """Return a row as JSON, without secrets; long columns are cut."""
    shown = {name: _shortened(value) for name, value in row.items() if name not in SECRET}
    return json.dumps(shown, default=repr)


def _shortened(value: object) -> object:
    if isinstance(value, bytes):
        value = repr(value)
    return value[:_LONGEST] + "..." if isinstance(value, str) and len(value) > _LONGEST else value


def _bytes(value: object) -> object:
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value
