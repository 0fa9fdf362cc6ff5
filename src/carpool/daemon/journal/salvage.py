"""Salvage of damaged journals: lost transactions, acknowledged jobs without a record, and running ones among them.

*The write-ahead log.*  SQLite takes the frames of the log up to the first one with a wrong checksum, and does not
report those behind it.  After a crash that is right: the last transaction may be there in part.  Behind a damaged
frame, though, there may be transactions that were on the disk, and acknowledged.  A transaction has been flushed
before the next one begins, so a transaction is known to have been durable if the log has a frame of a later one; for
the very last transaction that cannot be known.  The format is that of https://sqlite.org/fileformat2.html#walformat.

*Lost jobs.*  Their numbers are reported, and never given again.  Three things know of a number besides its row: the
counter in the journal itself, which a damaged write-ahead log sets back together with the rows; the file `acknowledged`
beside the journal, which is written before the answer to a submission; and the directories of jobs that were started.
The file is not flushed: it survives the daemon's death, and after a power failure it may be some seconds behind.

*Running jobs* without a record that can be read go on under a placeholder.  Without a record a daemon would refuse the
job's shim, and the job would stop for ever at its next turn, with all of its memory.  A running job needs little: its
owner, which the directory says, and what it asked of its devices, which the event of its submission says.  Its command
and its environment are lost, so it is never started again.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import msgspec

from carpool.core.events import Submitted
from carpool.core.model import JobId, JobSpec
from carpool.daemon.jobs.files import shim_lives
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.rows import LARGEST_NUMBER
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.system.clock import wall_us
from carpool.options.requests import told_to_core
from carpool.protocol.api import SubmitRequest
from carpool.protocol.paths import Home, open_regular, pwrite_all

log = logging.getLogger(__name__)
_HEADER = struct.Struct(">8I")  # magic, version, page size, checkpoint, salt 1 and 2, checksum 1 and 2
_FRAME = struct.Struct(">6I")  # page, pages of the file after a commit or 0, salt 1 and 2, checksum 1 and 2
_MAGIC = 0x377F0682  # checksums of little-endian words; with the last bit set: of big-endian ones
_LEAST_PAGE, _USUAL_PAGE, _LARGEST_PAGE = 512, 4096, 65536
#: A log grows beyond a few MiB only while a reader keeps SQLite from emptying it.
LARGEST_CHECKED = 64 << 20
Sums = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Frame:
    """``sound``: SQLite reads it; ``commits``: a transaction ends with it; ``current``: it is not of an older log."""

    sound: bool
    commits: bool
    current: bool


@dataclass(frozen=True, slots=True)
class WalDamage:
    """``transactions``: at least as many were on the disk and are not read; ``headless``: the header is damaged."""

    transactions: int
    headless: bool = False

    @property
    def text(self) -> str:
        """The damage, for people."""
        if self.headless:
            return "the header of the journal's write-ahead log is damaged: what was in the log may be lost"
        many = "1 transaction is" if self.transactions == 1 else f"{self.transactions} transactions are"
        return f"the journal's write-ahead log is damaged: at least {many} lost that had been written durably"


def wal_damage(path: Path) -> WalDamage | None:
    """Return the damage of the write-ahead log at ``path``; call before SQLite opens the journal.  Raises OSError."""
    if not path.exists() or path.stat().st_size > LARGEST_CHECKED:
        return None
    with open(open_regular(path), "rb") as file:
        head = file.read(_HEADER.size)
        headless = not _sound_header(head)
        frames = _frames_alone(file) if headless else _frames(file, head)
        lost = _lost_transactions(list(frames))
    return WalDamage(lost, headless) if lost else None


def _sound_header(head: bytes) -> bool:
    if len(head) < _HEADER.size:
        return False
    magic, _, page, _, _, _, *sums = _HEADER.unpack(head)
    sizes = _LEAST_PAGE <= page <= _LARGEST_PAGE and page & (page - 1) == 0
    return magic | 1 == _MAGIC | 1 and sizes and _checksum(head[:24], (0, 0), magic & 1) == tuple(sums)


def _frames(file: BinaryIO, head: bytes) -> Iterator[Frame]:
    """Yield all whole frames as SQLite reads them: after the first one that is not sound, no frame is sound."""
    magic, _, page, _, *salts = _HEADER.unpack(head)[:6]
    sums: Sums = _HEADER.unpack(head)[6:]
    sound = True
    while len(data := file.read(_FRAME.size + page)) == _FRAME.size + page:
        _, size, *rest = _FRAME.unpack(data[: _FRAME.size])
        current = rest[:2] == salts
        if sound:
            sums = _checksum(data[:8] + data[_FRAME.size :], sums, magic & 1)
            sound = current and sums == tuple(rest[2:])
        yield Frame(sound, size > 0, current)


def _frames_alone(file: BinaryIO) -> Iterator[Frame]:
    """Yield frames without the header that describes them; those of the first frame's log are current."""
    salts: list[int] | None = None
    while len(data := file.read(_FRAME.size + _USUAL_PAGE)) == _FRAME.size + _USUAL_PAGE:
        _, size, *rest = _FRAME.unpack(data[: _FRAME.size])
        salts = salts or rest[:2]
        yield Frame(False, size > 0, any(salts) and rest[:2] == salts)


def _lost_transactions(frames: list[Frame]) -> int:
    """Count the ends of transactions, behind the first damaged frame, that another transaction follows.

    A transaction that was given up has left no end there, or nothing follows it.
    """
    broken = next((place for place, frame in enumerate(frames) if not frame.sound), len(frames))
    behind = frames[broken:]
    last = max((place for place, frame in enumerate(behind) if frame.current), default=0)
    return sum(frame.commits for frame in behind[:last])


def _checksum(data: bytes, sums: Sums, big_endian: int) -> Sums:
    """Return the checksum of pairs of 32-bit words, beginning with ``sums``."""
    first, second = sums
    words = struct.unpack(f"{'>' if big_endian else '<'}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


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


_SUBMITTED = "SELECT data FROM events WHERE kind = 'Submitted' AND job = ? ORDER BY seq DESC"


def placeholder_jobs(
    connection: sqlite3.Connection, privileges: Privileges, home: Home, known: Collection[JobId]
) -> Iterator[JobRecord]:
    """Yield placeholders for the jobs that run, and are not ``known``."""
    for path in sorted(home.jobs.iterdir()):
        name = path.name
        number = int(name) if name.isascii() and name.isdecimal() and len(name) < 20 else 0
        missing = 0 < number <= LARGEST_NUMBER and number not in known
        if missing and shim_lives(privileges, home.job(number)):
            log.error(
                "job %d runs, and the journal has no record of it: it goes on, and is never started again", number
            )
            status = path.stat()
            yield _placeholder(number, status.st_uid, status.st_gid, _spec(connection, number))


def _spec(connection: sqlite3.Connection, job: JobId) -> JobSpec:
    """Return what the core was told of the job, or the defaults if that cannot be found either."""
    for (data,) in connection.execute(_SUBMITTED, (job,)):
        try:
            return msgspec.json.decode(data, type=Submitted).spec
        except (msgspec.MsgspecError, TypeError):
            log.warning("the event of job %d's submission cannot be read", job)
    return JobSpec(owner=0)


def _placeholder(number: JobId, owner: int, gid: int, spec: JobSpec) -> JobRecord:
    devices = (spec.device,) if isinstance(spec.device, str) else spec.device
    told = told_to_core(spec) | {"name": spec.name or "(unknown)", "array": None, "index": None, "group": ""}
    request = SubmitRequest(
        argv=["(unknown)"],
        cwd="/",
        env={},
        device=None if devices is None else ",".join(devices),
        gpus=spec.gang,
        service=None if spec.service is None else spec.service.priority,
        **told,
    )
    return JobRecord(number, owner, gid, request, spec.estimate, wall_us(), startable=False)
