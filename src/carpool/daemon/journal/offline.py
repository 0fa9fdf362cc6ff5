"""Reading and copying a journal without its daemon, as ``python -m carpool.daemon.journal.offline``.

- ``backup HOME FILE [--force]``: a consistent copy without secrets, in one read transaction, beside a daemon or without
  one.  SQLite's own backup would copy pages as they are, environments included, and what has been deleted from them;
  so rows are copied, and environments and targets of notices are not.
- ``list HOME``: the jobs of a journal whose daemon does not run.  What is read is a copy in memory: the journal stays
  as it is, also where a daemon would set rows aside or change tables.
- ``inspect HOME``: what is wrong with a journal, for `carpool doctor --journal`.  Only reads.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from carpool.daemon.jobs.info import job_info
from carpool.daemon.journal.contents import read_jobs
from carpool.daemon.journal.restart_record import BOOT_ID
from carpool.daemon.journal.rows import SECRET
from carpool.daemon.journal.salvage import acknowledged_in, last_in_journal, wal_damage
from carpool.daemon.journal.schema import SCHEMA, VERSION_KEY, problems, upgrade
from carpool.daemon.system.errors import CarpoolError
from carpool.protocol.api import ErrorBody, JobInfo, JournalListing
from carpool.protocol.paths import Home, may_not_be_read, open_regular
from carpool.protocol.units import format_size

#: Stands for an environment that is not copied: such a job is never started, such a model's workers have none.
_UNKNOWN = {"jobs": "'null'", "models": "'{}'"}
#: SQL for columns with targets of notices, without the targets: a webhook's path is a secret.  JSON may be invalid.
_WITHOUT_TARGETS = {
    ("jobs", "spec"): "CASE WHEN json_valid(spec) THEN json_remove(spec, '$.notify') ELSE '' END",
    ("quarantine", "data"): "CASE WHEN json_valid(data) THEN json_remove(data, '$.spec', '$.notice') ELSE '{}' END",
}
_NOTICES = frozenset({"notices"})
NOT_THEIRS = "the daemon answers for it: carpool ls, history, show and events; an administrator makes copies"
_OBJECTS = "SELECT type, name, sql FROM source.sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"


class BackupFailed(CarpoolError):
    """Error: no copy was made, and a file that was in its place is still there."""


class BackupReport(msgspec.Struct, frozen=True):
    """The report of a copy."""

    file: str
    bytes: int
    jobs: int


def back_up(journal: Path, file: Path, *, force: bool) -> BackupReport:
    """Copy the journal without secrets to ``file``.  Raises BackupFailed."""
    if refusal := may_not_be_read(journal):
        raise BackupFailed("may_not_read", refusal, NOT_THEIRS)
    if not journal.exists():
        raise BackupFailed("no_journal", f"there is no journal {journal}", "name the daemon's directory: --home")
    if file.exists() and not force:
        raise BackupFailed("file_exists", f"{file} exists", "name another file, or replace it with --force")
    try:
        return _put_in_place(journal, file, force)
    except sqlite3.Error as error:
        text = f"cannot copy {journal}: {error}"
        raise BackupFailed("backup_failed", text, "carpool doctor --journal says what is wrong with it") from None
    except OSError as error:
        text = f"cannot write {file}: {error.strerror}"
        raise BackupFailed("backup_failed", text, "choose a directory with room that you may write to") from None


def _put_in_place(journal: Path, file: Path, force: bool) -> BackupReport:
    fd, name = tempfile.mkstemp(dir=file.absolute().parent, prefix=f".{file.name}.")  # mode 0600
    try:
        jobs = _copy(journal, Path(name))
        os.fsync(fd)
        size = os.fstat(fd).st_size
        if force:
            Path(name).replace(file)
        else:
            os.link(name, file)
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            Path(name).unlink()
    return BackupReport(str(file), size, jobs)


#: A copy may be put back after the machine has restarted, when jobs of a later start run.
_UNDATED = f"DELETE FROM main.meta WHERE key = '{BOOT_ID}'"


def _copy(journal: Path, file: Path) -> int:
    """Copy the journal, and return the number of jobs."""
    with closing(sqlite3.connect(file, isolation_level=None, uri=True)) as copy:
        copy_rows(copy, journal, _NOTICES)
        copy.execute(_UNDATED)
        jobs: int = copy.execute("SELECT count(*) FROM main.jobs").fetchone()[0]
        return jobs


def copy_rows(copy: sqlite3.Connection, journal: Path, without: Collection[str] = ()) -> None:
    """Copy into an empty database, in one read transaction; the tables ``without`` stay empty.  Raises sqlite3.Error.

    ``copy`` was opened with ``uri=True`` and commits by itself; afterwards the journal is its database ``source``.
    """
    copy.execute("ATTACH DATABASE ? AS source", (read_only(journal),))
    copy.execute("BEGIN")
    objects = copy.execute(_OBJECTS).fetchall()
    for kind in ("table", "index", "trigger"):
        for name, sql in ((name, sql) for each, name, sql in objects if each == kind):
            copy.execute(sql)
            if kind == "table" and name not in without:
                copy.execute(_rows(copy, name))
    copy.execute("COMMIT")


def _rows(connection: sqlite3.Connection, table: str) -> str:
    """Return the statement that copies a table's rows."""
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    values = [_value(table, name) for name in columns]
    return f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM source.{table}"


def _value(table: str, column: str) -> str:
    """Return the SQL expression for what is copied of a column."""
    shown = _WITHOUT_TARGETS.get((table, column), column)
    return _UNKNOWN.get(table, "''") if column in SECRET else shown


def read_only(journal: Path) -> str:
    """Return the URI for SQLite to read the journal beside a daemon; without a log, not even a lock file is made."""
    logged = journal.with_name(f"{journal.name}-wal").exists()
    return f"{journal.absolute().as_uri()}?mode=ro" + ("" if logged else "&immutable=1")


#: Large tables that say nothing of a job's row.
_NOT_NEEDED = frozenset({"events", "history", "notices", "runs"})
_LATEST = "SELECT wall_us FROM source.events ORDER BY seq DESC LIMIT 1"


class JournalNotListed(CarpoolError):
    """The journal cannot be read."""


def listing(journal: Path) -> JournalListing:
    """Return all jobs in the order of their ids, and the moment of the newest event.  Raises CarpoolError."""
    if refusal := may_not_be_read(journal):
        raise JournalNotListed("may_not_read", refusal, NOT_THEIRS)
    try:
        with closing(sqlite3.connect(":memory:", isolation_level=None, uri=True)) as copy:
            copy_rows(copy, journal, without=_NOT_NEEDED)
            latest = copy.execute(_LATEST).fetchone()
            copy.execute("DETACH DATABASE source")
            upgrade(copy, journal)
            return JournalListing(None if latest is None else latest[0], _listed(copy))
    except sqlite3.Error as error:
        text = f"the journal {journal} cannot be read: {error}"
        raise JournalNotListed("journal_unreadable", text, "carpool doctor --journal says more") from None


def _listed(copy: sqlite3.Connection) -> list[JobInfo]:
    return [job_info(job, None) for job in read_jobs(copy)]


_RESTORE = "stop the daemon, keep a copy of the journal, and put a copy that `carpool backup` has made in its place"
_AGAIN = "submit these jobs again if they are still wanted"
_LOOK = "the rows below are kept as text; submit such jobs again if they are still wanted"


class JournalFinding(msgspec.Struct, frozen=True):
    """One line of the report; ``advice`` says what to do if it is not ``ok``."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def findings(home: Home) -> Iterator[JournalFinding]:
    """Yield the findings one by one; a finding that makes reading impossible is the last."""
    if refusal := may_not_be_read(home.journal):
        yield JournalFinding("journal", False, refusal, "an administrator of the daemon can check it")
        return
    if not home.journal.exists():
        yield JournalFinding("journal", True, f"{home.journal} (created at the first start)")
        return
    try:
        yield _log(home)
        with closing(sqlite3.connect(read_only(home.journal), uri=True, timeout=5.0)) as connection:
            yield from _inside(connection, home)
    except OSError as error:
        yield JournalFinding("journal", False, f"{home.journal}: {error.strerror}", _RESTORE)
    except sqlite3.Error as error:
        yield JournalFinding("journal", False, f"{home.journal}: {error}", _RESTORE)


def _log(home: Home) -> JournalFinding:
    """Check the write-ahead log; a transaction that is there in part, in a log being written, is no damage."""
    os.close(open_regular(home.journal))
    damage = wal_damage(home.journal_log)
    size = home.journal_log.stat().st_size if home.journal_log.exists() else 0
    return JournalFinding(
        "write-ahead log",
        damage is None,
        damage.text if damage else format_size(size),
        _AGAIN if damage else "",
    )


def _inside(connection: sqlite3.Connection, home: Home) -> Iterator[JournalFinding]:
    wrong = problems(connection)
    yield JournalFinding("pages", not wrong, wrong[0] if wrong else "sound", _RESTORE if wrong else "")
    yield (version := _version(connection))
    rows = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("jobs", "events")}
    size = format_size(home.journal.stat().st_size)
    yield JournalFinding("size", True, f"{size}: {rows['jobs']} jobs, {rows['events']} events")
    if version.ok:
        yield from _quarantined(connection)
        yield from _lost(connection, home)


def _version(connection: sqlite3.Connection) -> JournalFinding:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (VERSION_KEY,)).fetchone()
    found = str(row[0]) if row else "unreleased"
    known = found.isdecimal() and int(found) <= SCHEMA
    advice = "" if known else f"this Carpool knows versions up to {SCHEMA}: start the one that wrote the journal"
    return JournalFinding("version", known, found, advice)


def _quarantined(connection: sqlite3.Connection) -> Iterator[JournalFinding]:
    rows = connection.execute("SELECT found_us, source, job, reason, data FROM quarantine ORDER BY number").fetchall()
    yield JournalFinding("unreadable rows", not rows, str(len(rows) or "none"), _LOOK if rows else "")
    for found_us, table, job, reason, data in rows:
        about = "" if job is None else f", job {job}"
        text = f"{_day(found_us)}: {reason}; {ascii(data)[1:-1]}"
        yield JournalFinding(f"row of {table}{about}", False, text, "see above")


def _lost(connection: sqlite3.Connection, home: Home) -> Iterator[JournalFinding]:
    rows = connection.execute("SELECT found_us, first_job, last_job, text FROM losses ORDER BY number").fetchall()
    told = acknowledged_in(home.acknowledged)
    known = last_in_journal(connection)
    missing = rows or told > known
    yield JournalFinding("missing jobs", not missing, "none" if not missing else "some", _AGAIN if missing else "")
    for found_us, first, last, text in rows:
        which = "" if first is None else f"job {first}: " if first == last else f"jobs {first} to {last}: "
        yield JournalFinding("missing", False, f"{_day(found_us)}: {which}{text}", "see above")
    if told > known:
        text = f"jobs {known + 1} to {told}: acknowledged, and not in the journal"
        yield JournalFinding("missing", False, text, "see above")


def _day(wall_us: int) -> str:
    return datetime.fromtimestamp(wall_us / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _answer(command: str, home: Home, *options: str) -> object:
    """Return the answer of a command.  Raises CarpoolError."""
    if command == "backup":
        return back_up(home.journal, Path(options[0]), force="--force" in options)
    return listing(home.journal) if command == "list" else list(findings(home))


def main(arguments: Sequence[str]) -> int:
    """Carry out a command, and write its answer, or the error, as JSON."""
    command, home, *options = arguments
    answer: object
    try:
        answer, status = _answer(command, Home(Path(home)), *options), 0
    except CarpoolError as error:
        answer, status = ErrorBody(error.info), 1
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
