"""Reading a job's log, whose oldest part its shim may delete at any time (`carpool.runtime.shim.job_log`)."""

from __future__ import annotations

import errno
import os

CHUNK = 64 * 1024


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
