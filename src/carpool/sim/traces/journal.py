"""Carpool's own journal as a trace: the jobs that a daemon has really run, to be simulated under other policies.

A job that shared its device also waited for turns, so the span from its start to its end says little about how long it
takes alone: the duration is that of its parts (`carpool.sim.traces.journal_breakdowns`).  Of jobs without a recorded
breakdown it is start-up, up to the first use of the framework, and turn time; other time on the host counts as none.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from carpool.core.model import Micros
from carpool.sim.model.trace_job import ASSUMED_ITERATION_US, TraceJob
from carpool.sim.traces.files import TraceError
from carpool.sim.traces.journal_breakdowns import RecordedParts, read_breakdowns
from carpool.sim.traces.journal_machine import JournalMachine, machine_of

FILE = "journal.sqlite"  # in the daemon's home directory
VERSION = 1  # the newest known version of the journal

_JOBS = """SELECT id, owner, spec, phase, submitted_us, started_us, ended_us, device, device_us, iterations,
  persistent_bytes, ephemeral_bytes FROM jobs WHERE submitted_us >= ? ORDER BY submitted_us, id"""
_FIRST = """SELECT min(max(submitted_us, :since)) FROM jobs WHERE started_us IS NOT NULL AND CASE
  WHEN json_extract(spec, '$.engine') THEN coalesce(ended_us >= :since, 1)
  ELSE json_extract(spec, '$.service') IS NULL AND phase = 'ended' AND ended_us IS NOT NULL AND submitted_us >= :since
  END"""
_STARTUPS = """SELECT job, max(now_us) - min(now_us) FROM (
    SELECT job, kind, min(now_us) AS now_us FROM events WHERE kind IN ('StartJob', 'Attached') GROUP BY job, kind
  ) GROUP BY job HAVING count(*) = 2"""
_NOT_THEIRS = (
    "only root and the user who runs the daemon may read its journal; `carpool dashboard` simulates jobs that the"
    " daemon shows you"
)
#: Reasons for which jobs are left out: of one job, of several.  Engines are read by `journal_engines`.
_LEFT_OUT = {
    "never ran": "never ran",
    "has not ended": "have not ended",
    "is a worker of models": "are workers of models",
}
_FREE = "jobs that waited for others by --after arrive here when they were submitted, and wait for no job"


def read_journal(path: Path, since_us: Micros = 0) -> tuple[list[TraceJob], list[str]]:
    """Read a journal and return its jobs, and notes for users.  ``path``: the journal or its home directory.

    Neither is changed.  ``since_us``: only jobs that were submitted since then, on the wall clock.  Jobs that failed or
    were cancelled keep the length that they had.  Raises TraceError.
    """
    connection = open_journal(path)
    with closing(connection):
        try:
            return _read(path, connection, since_us)
        except sqlite3.Error as error:
            raise damaged(path, error) from None


def read_machine(path: Path, since_us: Micros = 0) -> JournalMachine:
    """Read what jobs submitted since a time of the wall clock say about the machine.  Raises TraceError."""
    with closing(open_journal(path)) as connection:
        try:
            return machine_of(connection, since_us)
        except sqlite3.Error as error:
            raise damaged(path, error) from None


def _read(file: Path, connection: sqlite3.Connection, since_us: Micros) -> tuple[list[TraceJob], list[str]]:
    kept, notes = _kept(connection.execute(_JOBS, (since_us,)))
    first = first_us(connection, since_us)
    if first is None:
        detail = f" ({'; '.join(notes)})" if notes else ""
        raise TraceError.at(file, "", f"no job in it has ended{detail}; wait until one has")
    breakdowns, starts = read_breakdowns(connection, kept), startups(connection)
    parts = [breakdowns.parts(row, _startup_us(row, starts)) for row in kept]
    jobs = [_job(row, first, each) for row, each in zip(kept, parts, strict=True)]
    return machine_of(connection, since_us).of(jobs), [*_about(parts), *notes]


def first_us(connection: sqlite3.Connection, since_us: Micros) -> Micros | None:
    """Return when the trace begins, by the wall clock: with its first job or engine; None: there is none."""
    found: Micros | None = connection.execute(_FIRST, {"since": since_us}).fetchone()[0]
    return found


def startups(connection: sqlite3.Connection) -> dict[int, Micros]:
    """Return how long the jobs of which that is known took from their start to their seat."""
    return dict(connection.execute(_STARTUPS).fetchall())


def open_journal(path: Path) -> sqlite3.Connection:
    """Open a journal for reading; ``path`` is the file or the home directory with it.  Raises TraceError."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise TraceError.at(file, "", "there is no journal; name the file, or the home directory of a daemon")
    if not os.access(file, os.R_OK):
        raise TraceError.at(file, "", _NOT_THEIRS)
    try:
        connection = _open(file)
    except sqlite3.Error as error:
        raise damaged(file, error) from None
    try:
        connection.row_factory = sqlite3.Row
        _check_version(file, connection)
    except sqlite3.Error as error:
        connection.close()
        raise damaged(file, error) from None
    except TraceError:
        connection.close()
        raise
    return connection


def damaged(file: Path, error: sqlite3.Error) -> TraceError:
    """Return the error for a file that SQLite cannot read."""
    return TraceError.at(file, "", f"this is not a journal of Carpool, or it is damaged ({error})")


def _open(file: Path) -> sqlite3.Connection:
    """Open a journal, which a daemon may be using; without a write-ahead log not even a lock file is made."""
    running = file.with_name(f"{file.name}-wal").exists()
    uri = f"{file.absolute().as_uri()}?mode=ro" + ("" if running else "&immutable=1")
    return sqlite3.connect(uri, uri=True, timeout=5.0)


def _check_version(file: Path, connection: sqlite3.Connection) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    if row is None or not str(row[0]).isdecimal():
        text = "it has no version: not a journal of Carpool, or one of an unreleased Carpool, which cannot be read"
        raise TraceError.at(file, "", text)
    if int(row[0]) > VERSION:
        text = f"a newer Carpool has written it (version {row[0]}, known is {VERSION}); use that Carpool"
        raise TraceError.at(file, "", text)


def _kept(rows: Iterable[sqlite3.Row]) -> tuple[list[sqlite3.Row], list[str]]:
    """Return the rows of jobs that can be simulated, and notes on the others."""
    kept: list[sqlite3.Row] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        reason = _left_out(row)
        skipped[reason] += 1
        if not reason:
            kept.append(row)
    notes = [_skipped(skipped[one], one, many) for one, many in _LEFT_OUT.items() if skipped[one]]
    if any(json.loads(row["spec"]).get("after") for row in kept):
        notes.insert(0, _FREE)
    return kept, notes


def _about(parts: Sequence[RecordedParts]) -> list[str]:
    """Say how much is known of the jobs."""
    if not parts:
        return []
    known, partly = sum(each.known for each in parts), sum(not each.whole for each in parts)
    rest = len(parts) - known
    counts = "1 counts" if rest == 1 else f"{rest:,} count"
    notes = [f"device time is that of a job alone: the pace of {known:,} is known, {counts} as recorded"]
    if partly:
        jobs = "1 job" if partly == 1 else f"{partly:,} jobs"
        notes.append(f"of {jobs} only start-up and turn time are known, and other time on the host counts as none")
    return notes


def _left_out(row: sqlite3.Row) -> str:
    """Return why a job is left out, a key of `_LEFT_OUT`; empty if it is not."""
    spec = json.loads(row["spec"])
    if spec.get("engine"):
        return "is an engine"
    if spec.get("service") is not None:
        return "is a worker of models"
    if row["phase"] != "ended" or row["ended_us"] is None:
        return "has not ended"
    return "never ran" if row["started_us"] is None else ""


def _skipped(count: int, one: str, many: str) -> str:
    return f"skipped 1 job that {one}" if count == 1 else f"skipped {count:,} jobs that {many}"


def _startup_us(row: sqlite3.Row, startups: Mapping[int, Micros]) -> Micros:
    """Return the time from the start to the seat; 0: not known, or the machine was restarted and reset the clock."""
    found = startups.get(row["id"], 0)
    return found if found <= row["ended_us"] - row["started_us"] else 0


def _job(row: sqlite3.Row, first: Micros, parts: RecordedParts) -> TraceJob:
    spec: dict[str, Any] = json.loads(row["spec"])
    work_us = parts.work_us
    count = row["iterations"] if 0 < row["iterations"] <= work_us else max(1, work_us // ASSUMED_ITERATION_US)
    return TraceJob(
        id=str(row["id"]),
        submit_us=row["submitted_us"] - first,
        duration_us=parts.startup_us + work_us + parts.host_us + parts.end_us,
        iterations=count,
        iteration_us=work_us // count,
        host_us=parts.host_us // count,
        persistent=row["persistent_bytes"],
        ephemeral=row["ephemeral_bytes"],
        gpus=spec.get("gpus", 1),
        model=spec.get("name") or "",
        weight=spec.get("weight", 100),
        owner=row["owner"],
        end_us=parts.end_us,
        startup_cpu_us=parts.startup_cpu_us,
        end_cpu_us=parts.end_cpu_us,
    )
