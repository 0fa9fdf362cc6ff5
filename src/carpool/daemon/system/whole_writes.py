"""Writing all of something: a disk that is almost full takes the first part only."""

from __future__ import annotations

import os


def pwrite_all(fd: int, data: bytes, offset: int) -> None:
    """Raises OSError; a part may have been written then."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
