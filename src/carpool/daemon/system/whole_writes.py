"""Writing data completely: a disk that is almost full takes only the first part."""

from __future__ import annotations

import os


def pwrite_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``.  Raises OSError; a part may have been written then."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
