"""What files in a job's directory, which belongs to the job's owner, say of its shim and of its end."""

from __future__ import annotations

import errno
import fcntl
import os

import msgspec

from carpool.daemon.privileges.base import Privileges
from carpool.daemon.privileges.beneath import owner_below
from carpool.protocol.paths import JobFiles

#: Errors that say nothing of the file: there are no descriptors, no memory, no helper, or the disk fails.
_UNKNOWN = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN)


class ExitRecord(msgspec.Struct, frozen=True):
    """``exit.json``, written by the shim when the main process has ended."""

    code: int | None = None
    signal: int | None = None
    seat: str = ""  # its counters at the end: the bytes of its seat, in hexadecimal
    text: str = ""  # why it could not be started
    host_memory: bool = False  # killed while the kernel ended a process of its control group for want of memory


def read_exit(privileges: Privileges, files: JobFiles, owner: int) -> ExitRecord | None:
    """None if the job has not ended, or nobody could record how.  Raises OSError if that cannot be known at present."""
    try:
        with open(privileges.open_owned(files.exit, owner), "rb") as file:
            return msgspec.json.decode(file.read(4096), type=ExitRecord)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, nested without end: it is the owner's file
        return None
    except OSError as error:
        if error.errno in _UNKNOWN:
            raise
        return None


def was_started(privileges: Privileges, files: JobFiles, owner: int) -> bool:
    """Whether a shim has begun to start the attempt.  Raises OSError if that cannot be known at present."""
    try:
        os.close(privileges.open_owned(files.started, owner))
    except OSError as error:
        if error.errno in _UNKNOWN:
            raise
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def shim_lives(privileges: Privileges, files: JobFiles) -> bool:
    """Whether a shim holds the job's lock, or that cannot be known at present.

    A lock that is no regular file with a single name, of the owner of the job's directory, counts as not held.
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
