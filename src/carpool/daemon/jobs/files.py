"""Reading the files in a job's directory, which the owner can write: the shim's records, the end, the log."""

from __future__ import annotations

import errno
import fcntl
import os

import msgspec

from carpool.daemon.privileges.base import Privileges
from carpool.daemon.privileges.direct import owner_below
from carpool.protocol.paths import JobFiles

#: Errors that say nothing about the file: no descriptors, no memory, no privileged helper, or a failing disk.
_UNKNOWN = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN)
CHUNK = 64 * 1024


class ExitRecord(msgspec.Struct, frozen=True):
    """``exit.json``, written by the shim when the main process has ended."""

    code: int | None = None
    signal: int | None = None
    seat: str = ""  # the bytes of the process's seat at its end (its counters), in hexadecimal
    text: str = ""  # why the process could not be started
    host_memory: bool = False  # killed while the kernel ended a process of its control group for want of memory


def read_exit(privileges: Privileges, files: JobFiles, owner: int) -> ExitRecord | None:
    """Read how the job ended; None if it has not, or left no record.  Raises OSError if that is unknown at present."""
    try:
        with open(privileges.open_owned(files.exit, owner), "rb") as file:
            return msgspec.json.decode(file.read(4096), type=ExitRecord)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, nested without end: the file belongs to the owner
        return None
    except OSError as error:
        if error.errno in _UNKNOWN:
            raise
        return None


def was_started(privileges: Privileges, files: JobFiles, owner: int) -> bool:
    """Return whether a shim has begun to start the attempt.  Raises OSError if that is unknown at present."""
    try:
        os.close(privileges.open_owned(files.started, owner))
    except OSError as error:
        if error.errno in _UNKNOWN:
            raise
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def shim_lives(privileges: Privileges, files: JobFiles) -> bool:
    """Return whether a shim holds the job's lock; also True if that is unknown at present.

    A lock counts as not held unless it is a regular file with a single name that belongs to the owner of the job's
    directory.
    """
    try:
        fd = privileges.open_owned(files.lock, owner_below(files.root.parent, files.root))
    except OSError as error:
        return error.errno in _UNKNOWN
    try:
        if os.fstat(fd).st_nlink != 1:
            return False
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def kept_from(fd: int, offset: int) -> int:
    """Return ``offset``, or the offset at which the log goes on behind a deleted part."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EINVAL):  # no data there yet; or the file system has no holes
            return offset
        raise


def next_piece(fd: int, offset: int) -> tuple[int, bytes]:
    """Return where the next bytes from ``offset`` on begin, and these bytes; no bytes at the end of the log."""
    while True:
        begin = kept_from(fd, offset)
        piece = os.pread(fd, CHUNK, begin)
        if kept_from(fd, begin) == begin:  # otherwise this part was deleted meanwhile, and the piece has zeros
            return begin, piece
        offset = begin
