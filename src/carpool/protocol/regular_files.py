"""Files of a daemon's home: what else has their names is refused at once; a FIFO would be waited for without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: For a log, which may be a device.
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
#: Modes of a file that is made: for its owner alone, or as the umask says.
PRIVATE, BY_UMASK = 0o600, 0o666


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = PRIVATE, *, device: bool = False) -> int:
    """Raises OSError, also for what is no regular file; with ``device`` it may be a device, such as /dev/null."""
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
    """All of a file.  Raises OSError, also for what is no regular file."""
    with open(open_regular(path), "rb") as file:
        return file.read()
