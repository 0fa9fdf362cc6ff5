"""Acknowledged jobs of which the journal has no record: their numbers are reported, and never given again.

Three things know of a number besides its row: the counter in the journal itself, which a damaged write-ahead log sets
back together with the rows; the file `acknowledged` beside the journal, which is written before the answer to a
submission; and the directories of jobs that were started.  The file is not flushed: it survives the daemon's death, and
after a power failure it may be some seconds behind.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from carpool.core.model import JobId
from carpool.daemon.journal.row_types import LARGEST_NUMBER
from carpool.daemon.journal.wal import WalDamage
from carpool.daemon.system.clock import wall_us
from carpool.protocol.paths import Home, pwrite_all

log = logging.getLogger(__name__)
TABLES = """
CREATE TABLE IF NOT EXISTS losses (  -- what the journal had once, and has no more
  number INTEGER PRIMARY KEY,
  found_us INTEGER NOT NULL,   -- wall clock
  first_job INTEGER,           -- numbers of jobs that were acknowledged; NULL: none is known
  last_job INTEGER,
  text TEXT NOT NULL
);
INSERT OR IGNORE INTO meta SELECT 'last_job', coalesce(max(id), 0) FROM jobs WHERE id <= 9007199254740992;
CREATE TRIGGER IF NOT EXISTS last_job AFTER INSERT ON jobs BEGIN
  UPDATE meta SET value = NEW.id WHERE key = 'last_job' AND CAST(value AS INTEGER) < NEW.id;
END;
"""
_INSERT = "INSERT INTO losses (found_us, first_job, last_job, text) VALUES (?, ?, ?, ?)"
_SAVED = "UPDATE meta SET value = ? WHERE key = 'last_job'"
_MISSING = "acknowledged, and not in the journal"


class Acknowledged:
    """The largest number of a job that a user has been told, in a file that is overwritten in place."""

    def __init__(self, path: Path) -> None:
        """Open the file, and create it if needed.  Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.last = _checked(os.pread(self._fd, 64, 0))

    def reach(self, job: JobId) -> None:
        """Note a number that is about to be told to its user."""
        if job <= self.last:
            return
        try:
            pwrite_all(self._fd, _with_checksum(job), 0)
            self.last = job
        except OSError as error:
            log.warning("cannot note that job %d is acknowledged: %s", job, error.strerror)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def acknowledged_in(path: Path) -> JobId:
    """Return the number in the file; 0: the file has no number that can be trusted.  Raises OSError."""
    return _checked(path.read_bytes()[:64]) if path.exists() else 0


def record_losses(connection: sqlite3.Connection, home: Home, told: JobId, damage: WalDamage | None) -> JobId:
    """Record what is missing, in the open transaction, and return the largest number that was ever given.

    ``told``: the largest one that a user was told; ``damage``: of the write-ahead log, before it was opened.
    """
    known = last_in_journal(connection)
    begun = sorted(job for job in _begun(home) if job > max(known, told))
    if damage is not None:
        _record(connection, None, None, damage.text)
    if told > known:
        _record(connection, known + 1, told, _MISSING)
    for first, last in _ranges(begun):
        _record(connection, first, last, _MISSING)
    largest = max([known, told, *begun])
    connection.execute(_SAVED, (largest,))
    return largest


def lost_jobs(connection: sqlite3.Connection) -> list[range]:
    """Return the numbers of all jobs that were acknowledged, and have no record."""
    rows = connection.execute("SELECT first_job, last_job FROM losses WHERE first_job IS NOT NULL ORDER BY first_job")
    return [range(first, last + 1) for first, last in rows]


def last_in_journal(connection: sqlite3.Connection) -> JobId:
    """Return the journal's own count of jobs, or the largest row's number if the count is damaged."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'last_job'").fetchone()
    text = str(row[0]) if row else ""
    if text.isascii() and text.isdecimal() and int(text) <= LARGEST_NUMBER:
        return int(text)
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()[0])


def _begun(home: Home) -> Iterator[JobId]:
    """Yield the jobs whose shim has been there: their submission was on the disk before."""
    for path in home.jobs.iterdir():
        number = _number(path.name.encode())
        if number and os.path.lexists(home.job(number).lock):
            yield number


def _with_checksum(job: JobId) -> bytes:
    number = b"%020d" % job
    return b"%s %08x\n" % (number, zlib.crc32(number))


def _checked(line: bytes) -> JobId:
    """Return the number in the line; 0: there is no number, or a damaged one."""
    job = _number(line.split(b" ")[0])
    if job and line == _with_checksum(job):
        return job
    if line:
        log.warning("the file that says which jobs were acknowledged is damaged; the journal's own count is used")
    return 0


def _number(text: bytes) -> JobId:
    """Return the number; 0: the text is no number of a job."""
    text = text.strip()
    return int(text) if text.isdigit() and len(text) <= 20 and int(text) <= LARGEST_NUMBER else 0


def _record(connection: sqlite3.Connection, first: JobId | None, last: JobId | None, text: str) -> None:
    log.error("%s%s", "" if first is None else f"jobs {first} to {last}: ", text)
    connection.execute(_INSERT, (wall_us(), first, last, text))


def _ranges(numbers: Iterable[JobId]) -> Iterator[tuple[JobId, JobId]]:
    """Yield the first and the last of each run of numbers without a gap."""
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]
