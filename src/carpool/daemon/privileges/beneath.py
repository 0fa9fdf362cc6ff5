"""Opening what users may have replaced, below a directory of the daemon's own: never through a link or onto a mount.

A file system that a user has mounted there (FUSE) might never answer.  The kernel refuses to cross onto a mount before
anything is asked of that file system, so these calls may be made in the daemon's loop.
"""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

from carpool.daemon.privileges.helper import open_beneath

log = logging.getLogger(__name__)


def open_below(directory: Path, path: Path, flags: int) -> int:
    """``path`` lies below ``directory``.  Raises OSError, EXDEV for what lies on a mount."""
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
    """The owner of a directory.  Raises OSError, as `open_below`."""
    fd = open_below(directory, path, os.O_PATH | os.O_DIRECTORY)
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)


@functools.cache
def has_openat2() -> bool:
    """Kernels before 5.6 have no such call, and some containers forbid what they do not know.

    Carpool runs there all the same: a file is opened without following a link at its end, and the directories above
    are the daemon's but for the last one, which can be no link either.  Only mounts are not noticed.
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
