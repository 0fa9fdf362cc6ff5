"""The ledger: what the daemon has given to each job, in a file that only the daemon writes.

A seat is memory that its job may write, and a shim runs as the job's owner: after a restart both are believed only as
far as the ledger confirms.  The ledger has to outlive the daemon, not the machine: no job survives a reboot.  The file
has a fixed size, so that a full disk cannot keep the daemon from writing; notes are appended, and when the file is
full, the notes that still count are written anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from carpool.core.model import JobId, LaneId, Memory
from carpool.daemon.jobs.seat_table import BoardError
from carpool.daemon.seats.kept_fds import LANE
from carpool.daemon.system.errors import file_of_home
from carpool.daemon.system.processes import start_time
from carpool.devices.base import BankId
from carpool.protocol.paths import Home, pwrite_all
from carpool.protocol.seat import SeatWords

log = logging.getLogger(__name__)
SIZE = 1 << 20
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: Device and inode of a descriptor.
File = tuple[int, int]


class Entry(msgspec.Struct, frozen=True):
    """The memory that one job has been given.  ``files``: the descriptors that the job's shim keeps, by name."""

    lane: LaneId | None = None
    bank: BankId | None = None  # the bank that the job's process was told of last
    limits: tuple[int, int] = (0, 0)  # bytes of persistent and of ephemeral memory
    files: dict[str, File] = {}
    process: tuple[int, int] | None = None  # of a job that has joined: pid and start time
    moved_out: int = 0  # bytes of persistent memory that it could use when that last left its device

    @property
    def granted(self) -> Memory:
        """The memory that the job may use."""
        return Memory(*self.limits)


class LedgerNote(msgspec.Struct, omit_defaults=True):
    """A line of the file: what has changed for one job, or that the job no longer has anything."""

    job: JobId
    lane: LaneId | None = None
    bank: BankId | None = None
    limits: tuple[int, int] | None = None
    kept: dict[str, File] = {}
    dropped: list[str] = []
    process: tuple[int, int] | None = None
    moved_out: int | None = None
    over: bool = False


class GrantLedger:
    """The ledger.  ``path`` None keeps nothing, for tests whose daemon has no successor.  Raises OSError."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: dict[JobId, Entry] = {}
        self._fd, self._end, self._size = -1, 0, SIZE
        self._behind = False  # a note could not be written
        #: Whether an earlier daemon has kept a ledger.  Daemons of version 0.1.0 did not.
        self.inherited = path is not None and path.exists()
        if path is not None:
            self._open(path)

    def close(self) -> None:
        """Close the file; later notes are not written."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def of(self, job: JobId) -> Entry:
        """Return what the job has been given; an empty entry for an unknown job."""
        return self._entries.get(job, Entry())

    def entries(self) -> list[tuple[JobId, Entry]]:
        """List the entries of all jobs that have any."""
        return [*self._entries.items()]

    # What the daemon gives

    def keep(self, job: JobId, names: Mapping[str, int]) -> None:
        """Note that the job's shim is sent these descriptors."""
        self._write(LedgerNote(job, kept={name: file_of(fd) for name, fd in names.items()}))

    def drop(self, job: JobId, names: Iterable[str]) -> None:
        """Note that the job's shim is told to close the descriptors of these names."""
        if job in self._entries:
            self._write(LedgerNote(job, dropped=list(names)))

    def move(self, job: JobId, lane: LaneId) -> None:
        """Note that the job's process is told that it is in this lane."""
        self._write(LedgerNote(job, lane=lane))

    def give_bank(self, job: JobId, bank: BankId) -> None:
        """Note that the job's process is told of this bank."""
        self._write(LedgerNote(job, bank=bank))

    def limit(self, job: JobId, memory: Memory) -> None:
        """Note how much memory the job may use.  Most grants change nothing, and are not written."""
        limits = memory.persistent, memory.ephemeral
        if self.of(job).limits != limits:
            self._write(LedgerNote(job, limits=limits))

    def move_out(self, job: JobId, size: int) -> None:
        """Note that so many bytes leave the job's device: its seat tells only of those that lie in a store's file."""
        if self.of(job).moved_out != size:
            self._write(LedgerNote(job, moved_out=size))

    def join(self, job: JobId, process: tuple[int, int]) -> None:
        """Note the process of a job that has joined: after a restart no other process may come back as this job's."""
        if self.of(job).process != process:
            self._write(LedgerNote(job, process=process))

    def forget(self, job: JobId) -> None:
        """Note that the job no longer has anything."""
        if job in self._entries:
            self._write(LedgerNote(job, over=True))

    def forget_others(self, jobs: Iterable[JobId]) -> None:
        """After a restart, forget all jobs but ``jobs``: those that the journal does not know or that have ended."""
        for job in self._entries.keys() - set(jobs):
            self.forget(job)

    # Reading back after a restart

    def given(self, job: JobId, words: SeatWords) -> Entry:
        """Return what the job has been given; if the earlier daemon kept no ledger, adopt what the seat says."""
        if not self.inherited:
            self._write(LedgerNote(job, words.lane, words.bank, (words.p_limit, words.e_limit)))
        return self.of(job)

    def believed(self, job: JobId, kept: dict[str, int]) -> None:
        """Leave in ``kept`` what the job has been given under these names, and lanes; close the rest.

        A lane that the ledger does not know is one that the job has just left.  Raises BoardError if a descriptor is
        not the one recorded under its name.
        """
        if not self.inherited:
            self.keep(job, kept)
            return
        files = self.of(job).files
        for name, fd in kept.items():
            if name in files and files[name] != file_of(fd):
                raise BoardError(f"the descriptor {name} that its shim keeps is not the one that it was given")
        for name in [name for name in kept if name not in files and not name.startswith(f"{LANE}:")]:
            os.close(kept.pop(name))

    # The file

    def _write(self, note: LedgerNote) -> None:
        self._apply(note)
        if self._fd < 0:
            return
        try:
            self._append(msgspec.json.encode(note) + b"\n")
        except OSError as error:
            self._behind = True
            log.error("cannot write the ledger, and try again with the next note: %s", error)

    def _append(self, line: bytes) -> None:
        """Append a line, or rewrite the file.  Raises OSError."""
        if self._behind or self._end + len(line) > self._size:
            self._rewrite()
            self._behind = False
        else:
            pwrite_all(self._fd, line, self._end)
            self._end += len(line)

    def _apply(self, note: LedgerNote) -> None:
        if note.over:
            self._entries.pop(note.job, None)
            return
        entry = self._entries.get(note.job, Entry())
        self._entries[note.job] = Entry(
            lane=entry.lane if note.lane is None else note.lane,
            bank=entry.bank if note.bank is None else note.bank,
            limits=note.limits or entry.limits,
            files=_changed(entry.files, note),
            process=note.process or entry.process,
            moved_out=entry.moved_out if note.moved_out is None else note.moved_out,
        )

    def _open(self, path: Path) -> None:
        """Read what an earlier daemon has written, and continue behind it.  Raises OSError."""
        self._fd = os.open(path, _FLAGS, 0o600)
        self._size = max(SIZE, os.fstat(self._fd).st_size)
        os.posix_fallocate(self._fd, 0, self._size)
        for note in self._notes(os.pread(self._fd, self._size, 0)):
            self._apply(note)

    def _notes(self, content: bytes) -> Iterator[LedgerNote]:
        """Read notes up to the end or to a line cut short by the daemon's death; the next note begins there."""
        for line in content.split(b"\0", 1)[0].splitlines(keepends=True):
            try:
                note = msgspec.json.decode(line, type=LedgerNote)
            except (ValueError, RecursionError) as error:  # a damaged disk writes anything
                log.warning("the ledger ends in the middle of a line: %s", error)
                break
            yield note
            self._end += len(line)
        ends = content[max(self._end - 1, 0) : self._end]
        if any(content[self._end :]) or ends not in (b"", b"\n"):  # a note without its newline would swallow the next
            self._rewrite()

    def _rewrite(self) -> None:
        """Write the notes that count into a new file that replaces the old one; on a full disk, into the old file.

        Raises OSError.
        """
        assert self._path is not None
        notes = [
            LedgerNote(
                job, entry.lane, entry.bank, entry.limits, entry.files, process=entry.process, moved_out=entry.moved_out
            )
            for job, entry in self._entries.items()
        ]
        text = b"".join(msgspec.json.encode(note) + b"\n" for note in notes)
        try:
            self._replace(self._path, text)
        except OSError as error:
            log.warning("the ledger is written anew in its place: %s", error)
            pwrite_all(self._fd, text.ljust(self._size, b"\0"), 0)
        self._end = len(text)

    def _replace(self, path: Path, text: bytes) -> None:
        """Replace the file by one with this text.  Raises OSError; the old file is still in use then."""
        draft, size = path.with_suffix(".new"), max(SIZE, 2 * len(text))
        fd = os.open(draft, _FLAGS | os.O_TRUNC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            pwrite_all(fd, text, 0)
            draft.replace(path)
        except OSError:
            os.close(fd)
            draft.unlink()
            raise
        os.close(self._fd)
        self._fd, self._size = fd, size


def _changed(files: dict[str, File], note: LedgerNote) -> dict[str, File]:
    """Return the changed files; changed in place, because a job on a GPU may have thousands of extents."""
    files.update(note.kept)
    for name in note.dropped:
        files.pop(name, None)
    return files


def open_ledger(home: Home) -> GrantLedger:
    """Open the ledger of a home.  Raises StartupError."""
    with file_of_home(home.ledger, "write"):
        return GrantLedger(home.ledger)


def joined_that_live(path: Path) -> set[JobId]:
    """Return the joined jobs that an earlier daemon has noted and whose processes live.  Raises OSError."""
    if not path.exists():
        return set()
    ledger = GrantLedger(path)
    ledger.close()
    noted = ((job, entry.process) for job, entry in ledger.entries())
    return {job for job, process in noted if process is not None and start_time(process[0]) == process[1]}


def file_of(fd: int) -> File:
    """Return the device and inode of a descriptor.  Raises OSError."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
