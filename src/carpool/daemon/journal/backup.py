"""``python -m carpool.daemon.journal.backup HOME FILE [--force]``: a consistent copy of the journal without secrets.

The copy is made in one read transaction, beside a daemon or without one.  SQLite's own backup would copy pages
as they are, environments included, and what has been deleted from them; so rows are copied, and environments and
targets of notices are not.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from carpool.daemon.journal.boot_record import BOOT_ID
from carpool.daemon.journal.quarantine import SECRET
from carpool.daemon.system.errors import CarpoolError
from carpool.protocol.api import ErrorBody
from carpool.protocol.paths import Home, may_not_be_read

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
    """No copy was made; a file that was in its place is still there."""


class BackupReport(msgspec.Struct, frozen=True):
    """What has been copied."""

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


def main(arguments: Sequence[str]) -> int:
    """Back up, and write the report, or the error, as JSON."""
    home, file, *options = arguments
    answer: object
    try:
        answer, status = back_up(Home(Path(home)).journal, Path(file), force="--force" in options), 0
    except BackupFailed as error:
        answer, status = ErrorBody(error.info), 1
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
