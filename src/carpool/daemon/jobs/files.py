"""Files in a job's directory, which belongs to the job's owner: a root daemon must not be led astray by links."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from carpool.core.model import JobId
from carpool.protocol.paths import Home, JobFiles

#: Errors that say nothing of the file: there are no descriptors, no memory, or the disk fails.
_UNKNOWN = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)


class ExitRecord(msgspec.Struct, frozen=True):
    """``exit.json``, written by the shim when the main process has ended."""

    code: int | None = None
    signal: int | None = None
    seat: str = ""  # its counters at the end: the bytes of its seat, in hexadecimal
    text: str = ""  # why it could not be started
    host_memory: bool = False  # killed while the kernel ended a process of its control group for want of memory


def create_directory(home: Home, job: JobId, owner: int, gid: int) -> JobFiles:
    """The job's directory, of its owner.  Raises OSError."""
    files = home.job(job)
    files.root.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(files.root, owner, gid)
    return files


def open_owned(path: os.PathLike[str], owner: int) -> int:
    """Open a regular file of ``owner`` for reading, never through a link.  Raises OSError."""
    with _closed_on_error(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            raise PermissionError(f"{os.fspath(path)} is not a file of uid {owner}")
    return fd


def read_exit(files: JobFiles, owner: int) -> ExitRecord | None:
    """None if the job has not ended, or nobody could record how.  Raises OSError if that cannot be known at present."""
    try:
        with open(open_owned(files.exit, owner), "rb") as file:
            return msgspec.json.decode(file.read(4096), type=ExitRecord)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, nested without end: it is the owner's file
        return None
    except OSError as error:
        if error.errno in _UNKNOWN:
            raise
        return None


def take_lock(files: JobFiles) -> int | None:
    """A locked descriptor for the shim to inherit; None while a shim of the job lives.  Raises OSError."""
    with _closed_on_error(_open_lock(files, os.O_RDWR | os.O_CREAT)) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        if os.geteuid() == 0:
            os.fchown(fd, files.root.stat().st_uid, -1)
    return fd


def shim_lives(files: JobFiles) -> bool:
    """Whether a shim holds the job's lock, or that cannot be known at present.

    A lock that is no regular file counts as not held.
    """
    try:
        fd = _open_lock(files, os.O_RDONLY)
    except OSError as error:
        return error.errno in _UNKNOWN
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _open_lock(files: JobFiles, flags: int) -> int:
    """The job's lock, which its owner may have replaced: never waits, never follows a link.  Raises OSError."""
    with _closed_on_error(os.open(files.lock, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise PermissionError(
                f"{files.lock} is no regular file with a single name: the job's owner has replaced the lock"
            )
    return fd


@contextmanager
def _closed_on_error(fd: int) -> Iterator[int]:
    try:
        yield fd
    except BaseException:
        os.close(fd)
        raise
