"""``python -m carpool.daemon.journal.inspect HOME``: what is wrong with a journal, for `carpool doctor --journal`.

Only reads, beside a daemon that runs or without one.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from carpool.daemon.journal.backup import read_only
from carpool.daemon.journal.losses import acknowledged_in, last_in_journal
from carpool.daemon.journal.schema import SCHEMA, VERSION_KEY, problems
from carpool.daemon.journal.wal import wal_damage
from carpool.protocol.paths import Home, may_not_be_read, open_regular
from carpool.protocol.units import format_size

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
        *("write-ahead log", damage is None, damage.text if damage else format_size(size)),
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


def main(home: str) -> int:
    """Write the findings as JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(list(findings(Home(Path(home))))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
