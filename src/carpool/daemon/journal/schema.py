"""The journal's tables, and opening the file, with one clear message for each way in which it can be unusable."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from carpool.daemon.journal import breakdowns, history, rows, salvage
from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import open_regular

#: The key of the table `meta` that says which version of the journal a file is.
VERSION_KEY = "version"
_UNRELEASED_KEY = "schema"  # said so in journals from before version 1
#: Statements that make the next version of a journal: the first entry makes version 2 of version 1.
MIGRATIONS: tuple[str, ...] = ()
SCHEMA = len(MIGRATIONS) + 1
CHECKED_BYTES = 64 << 20  # larger journals are not checked page by page at every start

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (
  id INTEGER PRIMARY KEY,
  owner INTEGER NOT NULL,
  gid INTEGER NOT NULL,
  spec TEXT NOT NULL,          -- SubmitRequest as JSON, without env
  env TEXT NOT NULL,           -- the environment as JSON; never leaves the daemon except to the job
  estimate TEXT,               -- carpool.core.model.Estimate as JSON
  submitted_us INTEGER NOT NULL,
  cancelled INTEGER NOT NULL DEFAULT 0,
  phase TEXT NOT NULL,
  device TEXT,
  outcome TEXT,
  exit_code INTEGER,
  signal INTEGER,
  reason_code TEXT,
  reason_text TEXT,
  persistent_bytes INTEGER NOT NULL DEFAULT 0,
  ephemeral_bytes INTEGER NOT NULL DEFAULT 0,
  iterations INTEGER NOT NULL DEFAULT 0,
  device_us INTEGER NOT NULL DEFAULT 0,
  switches INTEGER NOT NULL DEFAULT 0,
  residue_bytes INTEGER NOT NULL DEFAULT 0,
  started_us INTEGER,
  ended_us INTEGER,
  out_bytes INTEGER NOT NULL DEFAULT 0,  -- moved to the host store in all, and the time that took
  out_us INTEGER NOT NULL DEFAULT 0,
  in_bytes INTEGER NOT NULL DEFAULT 0,   -- moved back
  in_us INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS attempts (   -- starts of jobs that are over
  job INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  last INTEGER NOT NULL,       -- 1: with it the job ended; 0: another one followed, or is to follow
  device TEXT,
  started_us INTEGER,
  ended_us INTEGER NOT NULL,
  exit_code INTEGER,
  signal INTEGER,
  out_of_memory INTEGER NOT NULL,  -- 1: it ended for want of device memory; 2: before it had any
  outgrown_bytes INTEGER NOT NULL,  -- bytes of its device that it had to itself, and that were too few
  reason TEXT NOT NULL,
  persistent_bytes INTEGER NOT NULL,  -- most that it has used
  ephemeral_bytes INTEGER NOT NULL,
  estimate TEXT,               -- that of the next attempt
  log TEXT NOT NULL,           -- name of its log in the job's directory
  PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_unfinished ON jobs (id) WHERE phase != 'ended';
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY,
  wall_us INTEGER NOT NULL,
  now_us INTEGER NOT NULL,
  kind TEXT NOT NULL,
  job INTEGER,
  ring INTEGER NOT NULL,       -- 1: frequent kind, only the newest are kept
  data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_ring ON events (seq) WHERE ring = 1;
CREATE TABLE IF NOT EXISTS placements (
  job INTEGER PRIMARY KEY,
  devices TEXT NOT NULL,       -- those that it was given last, its own first, as JSON
  decision TEXT NOT NULL       -- carpool.core.commands.Placement as JSON
);
CREATE TABLE IF NOT EXISTS runs (  -- the last ones of each command that ended well
  command_key TEXT NOT NULL,
  ended_us INTEGER NOT NULL,
  persistent_bytes INTEGER NOT NULL,
  ephemeral_bytes INTEGER NOT NULL,
  iterations INTEGER NOT NULL,
  iteration_us INTEGER
);
CREATE INDEX IF NOT EXISTS runs_by_command ON runs (command_key, ended_us);
CREATE TABLE IF NOT EXISTS notices (  -- of starts and ends of jobs
  job INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  event TEXT NOT NULL,
  place INTEGER NOT NULL,      -- of the target in the submission
  notice TEXT NOT NULL,        -- carpool.daemon.journal.notices.Notice as JSON
  state TEXT NOT NULL,         -- owed, sent or failed
  tries INTEGER NOT NULL,      -- that have begun
  text TEXT NOT NULL,          -- what was wrong with the last one
  PRIMARY KEY (job, attempt, event, place)
);
CREATE TABLE IF NOT EXISTS models (  -- registered for inference
  owner INTEGER NOT NULL,
  name TEXT NOT NULL,
  spec TEXT NOT NULL,          -- ModelRequest as JSON, without env
  env TEXT NOT NULL,           -- the environment as JSON; never leaves the daemon except to the owner
  added_us INTEGER NOT NULL,
  PRIMARY KEY (owner, name)
) WITHOUT ROWID;
"""


def open_journal(path: Path) -> sqlite3.Connection:
    """Open or create the journal for writing.  Raises StartupError; never changes a file it cannot use."""
    try:
        # Created here, so that it never exists with other permissions, not even for a moment.
        os.close(open_regular(path, os.O_RDWR | os.O_CREAT))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        _prepare(connection, path)
    except sqlite3.OperationalError as error:
        raise StartupError(
            "journal_unusable",
            f"cannot write the journal {path}: {error}",
            "free disk space, or choose another --home",
        ) from None
    except sqlite3.DatabaseError as error:
        raise broken(path, str(error)) from None
    except OSError as error:
        raise StartupError("journal_unusable", f"cannot open the journal {path}: {error.strerror}") from None
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")  # see `carpool.daemon.journal.writer`
    if path.stat().st_size <= CHECKED_BYTES and (found := problems(connection)):
        raise sqlite3.DatabaseError(found[0])
    if upgrade(connection, path) is None:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a damaged log must not take the tables, too


def upgrade(connection: sqlite3.Connection, path: Path, migrations: Sequence[str] = MIGRATIONS) -> int | None:
    """Give the tables this version's schema; return the earlier one, None for an empty file.  Raises StartupError."""
    latest = len(migrations) + 1
    version = _version(connection, path, latest)
    for number in range(version or latest, latest):
        now = f"UPDATE meta SET value = '{number + 1}' WHERE key = '{VERSION_KEY}'"
        connection.executescript(f"BEGIN IMMEDIATE; {migrations[number - 1]}; {now}; COMMIT")
    connection.executescript(TABLES + breakdowns.TABLES + history.TABLES + rows.TABLES + salvage.TABLES)
    connection.execute(rows.PUT_META, (VERSION_KEY, str(latest)))
    return version


def problems(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with the file's structure; rows are checked one by one, when they are read."""
    lines = [line for (line,) in connection.execute("PRAGMA quick_check(100)")]
    return [line for line in lines if line != "ok" and not line.startswith("NULL value in ")]


def _version(connection: sqlite3.Connection, path: Path, known: int) -> int | None:
    """Return the file's version; None: the file is empty.  Raises StartupError for a file that cannot be used."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if "meta" not in tables:
        raise broken(path, "it is the database of another program")
    values = dict(connection.execute("SELECT key, value FROM meta WHERE key IN (?, ?)", (VERSION_KEY, _UNRELEASED_KEY)))
    if _UNRELEASED_KEY in values:
        text = f"the journal {path} was written by an unreleased Carpool, and this version cannot read it"
        hint = "let its jobs end under the Carpool that wrote it, or choose another --home; the journal is as it was"
        raise StartupError("journal_unreleased", text, hint)
    if VERSION_KEY not in values and not _any_job(connection, tables):
        return None  # the daemon that was to create the journal died too early
    version = str(values.get(VERSION_KEY))
    if not version.isdecimal() or version == "0":
        raise broken(path, "it does not say which version wrote it")
    if int(version) > known:
        text = f"the journal {path} was written by a newer Carpool (version {version}, this one knows {known})"
        raise StartupError("journal_newer", text, "start the newer version, or choose another --home")
    return int(version)


def _any_job(connection: sqlite3.Connection, tables: set[str]) -> bool:
    return "jobs" in tables and connection.execute("SELECT 1 FROM jobs").fetchone() is not None


def broken(path: Path, why: str) -> StartupError:
    """Return the error for a journal that cannot be opened."""
    return StartupError(
        "journal_broken",
        f"the journal {path} is not usable: {why}",
        "put a copy that `carpool backup` has made in its place, or move it away to start empty:"
        f" mv {path} {path}.broken",
    )
