"""Opening files that users may have replaced, below a directory of the daemon's: never through a link or onto a mount.

A file system that a user has mounted there (FUSE) might never answer.  The kernel refuses to cross onto a mount before
it asks that file system anything, so these calls may be made in the daemon's loop.
"""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

from carpool.daemon.privileges.helper import open_beneath

log = logging.getLogger(__name__)


def open_below(directory: Path, path: Path, flags: int) -> int:
    """Open ``path``, which lies below ``directory``.  Raises OSError; EXDEV for a path on a mount."""
    try:
        if not has_openat2():
            return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        top = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return open_beneath(top, str(path.relative_to(directory)), flags)
        finally:
            os.close(top)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def owner_below(directory: Path, path: Path) -> int:
    """Return the owner of a directory.  Raises OSError, as `open_below` does."""
    fd = open_below(directory, path, os.O_PATH | os.O_DIRECTORY)
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)


@functools.cache
def has_openat2() -> bool:
    """Return whether openat2 works: kernels before 5.6 lack it, and some containers forbid calls they do not know.

    Carpool runs there all the same: a file is opened without following a link at its end, and the directories above
    belong to the daemon except the last, which cannot be a link either.  Only mounts go unnoticed.
    """
    top = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_beneath(top, ".", os.O_PATH))
    except OSError as error:
        log.warning("no openat2 (%s): a user who mounts a file system on a job's files can delay the daemon", error)
        return False
    finally:
        os.close(top)
    return True
