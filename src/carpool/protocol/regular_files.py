"""Regular files of a daemon's home.  Any other kind of file is refused at once: a FIFO would block for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: Flags for a log, which may be a device.
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
#: Modes of a new file: for its owner alone, or as the umask says.
PRIVATE, BY_UMASK = 0o600, 0o666


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = PRIVATE, *, device: bool = False) -> int:
    """Open a regular file.  Raises OSError, also for another kind of file.

    With ``device`` it may also be a device, such as /dev/null.
    """
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
    except OSError as error:
        raise _irregular(path) if error.errno == errno.ENXIO else error from None
    try:
        kind = os.fstat(fd).st_mode
        if not (stat.S_ISREG(kind) or (device and stat.S_ISCHR(kind))):
            raise _irregular(path)
    except OSError:
        os.close(fd)
        raise
    return fd


def _irregular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "this is no regular file: move it away", str(path))


def read_regular(path: Path) -> bytes:
    """Read a whole file.  Raises OSError, also for what is not a regular file."""
    with open(open_regular(path), "rb") as file:
        return file.read()


def pwrite_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``.  Raises OSError; a part may have been written then."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
