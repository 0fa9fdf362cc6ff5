"""Where daemons of tests have their homes: in memory, where a write to the journal waits for no disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
#: As much as all homes of a run have together, many times over; containers often have less there.
ENOUGH = 1 << 30


def parent() -> Path:
    """The directory for homes: that of temporary files where memory is short."""
    with suppress(OSError):
        status = os.statvfs(MEMORY)
        if status.f_bavail * status.f_frsize >= ENOUGH and os.access(MEMORY, os.W_OK | os.X_OK):
            return MEMORY
    return Path(tempfile.gettempdir())


@contextmanager
def home_directory() -> Iterator[Path]:
    """A directory for homes, with a short path: those of sockets are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="cp-", dir=parent()) as directory:
        yield Path(directory)
