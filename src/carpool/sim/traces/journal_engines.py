"""The engines of a journal: when each had requests, which is recorded, and how long it computed in these times.

A time with requests counts as one request, which computes for as long as the engine had its turn then; where the
journal no longer has the turns, for all of that time.  Tokens are not in a journal.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice, takewhile
from pathlib import Path

import msgspec

from carpool.core.model import ENGINE_LINGER_US, JobId, Micros
from carpool.facts.fact import Fact, What
from carpool.facts.fold import Fold
from carpool.sim.model.served_engines import EngineRequest, ServedEngine
from carpool.sim.traces.journal import damaged, first_us, open_journal, startups

ENGINE = "json_extract(spec, '$.engine')"
_ENGINES = f"""SELECT id, owner, coalesce(json_extract(spec, '$.name'), '') AS name,
    json_extract(spec, '$.service') AS priority, submitted_us, ended_us, persistent_bytes
  FROM jobs WHERE {ENGINE} AND started_us IS NOT NULL AND coalesce(ended_us >= ?, 1) ORDER BY submitted_us, id"""
_EVENTS = f"""SELECT wall_us, now_us, kind, data FROM events
  WHERE kind = 'RestartBegan' OR job IN (SELECT id FROM jobs WHERE {ENGINE}) ORDER BY seq"""
_GRANTED = """SELECT max(json_extract(data, '$.memory.persistent')) FROM events
  WHERE kind = 'GrantMemory' AND job = ?"""
Times = list[tuple[Micros, Micros]]


def read_engines(path: Path, since_us: Micros = 0) -> list[ServedEngine]:
    """Read the engines that have run since a time of the wall clock; times count as those of `read_journal`'s jobs.

    Raises TraceError.
    """
    connection = open_journal(path)
    with closing(connection):
        try:
            first = first_us(connection, since_us)
            rows = connection.execute(_ENGINES, (since_us,)).fetchall()
            if first is None or not rows:
                return []
            times, starts = _facts(connection.execute(_EVENTS)), startups(connection)
            return [_engine(connection, row, first, starts, times) for row in rows]
        except sqlite3.Error as error:
            raise damaged(path, error) from None


def _facts(rows: Iterable[sqlite3.Row]) -> Mapping[tuple[JobId, str], Times]:
    """Return the times with requests, and the turns, of each engine: by the wall clock, in order."""
    found: dict[tuple[JobId, str], Times] = defaultdict(list)
    for fact in _ended(rows):
        if fact.what in (What.ANSWERS, What.TURN) and fact.lasted_us > 0:
            assert fact.start_us is not None and fact.end_us is not None, "it has lasted"
            found[fact.job, fact.what].append((fact.start_us, fact.end_us))
    return found


def _ended(rows: Iterable[sqlite3.Row]) -> Iterator[Fact]:
    """Yield what has begun and ended, by the wall clock."""
    fold = Fold()
    kinds = {kind.__name__: kind for kind in fold.kinds}
    for row in rows:
        kind = kinds.get(row["kind"])
        if kind is not None:
            told = fold.happened(row["wall_us"], msgspec.convert(json.loads(row["data"]), kind))
            yield from (fact for fact in told if isinstance(fact, Fact) and fact.end_us is not None)


def _engine(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    first: Micros,
    starts: Mapping[JobId, Micros],
    times: Mapping[tuple[JobId, str], Times],
) -> ServedEngine:
    busy, turns = (times.get((row["id"], what), []) for what in (What.ANSWERS, What.TURN))
    memory = row["persistent_bytes"] or connection.execute(_GRANTED, (row["id"],)).fetchone()[0] or 0
    return ServedEngine(
        name=row["name"] or f"job {row['id']}",
        requests=tuple(_requests(busy, turns, first)),
        cache=memory,
        start_us=starts.get(row["id"], 0) if row["submitted_us"] >= first else 0,
        begin_us=max(0, row["submitted_us"] - first),
        end_us=0 if row["ended_us"] is None else row["ended_us"] - first,
        priority=row["priority"],
        owner=row["owner"],
    )


def _requests(busy: Times, turns: Times, first: Micros) -> Iterator[EngineRequest]:
    place = 0
    for begin, end in busy:
        while place < len(turns) and turns[place][1] <= begin:
            place += 1
        computed = _within(islice(turns, place, None), begin, end) or end - begin
        if begin >= first:
            yield EngineRequest(begin - first, max(1, computed - ENGINE_LINGER_US), 0)


def _within(turns: Iterable[tuple[Micros, Micros]], begin: Micros, end: Micros) -> Micros:
    """Return for how long of a time there were turns."""
    found = takewhile(lambda turn: turn[0] < end, turns)
    return sum(min(end, turn[1]) - max(begin, turn[0]) for turn in found)
