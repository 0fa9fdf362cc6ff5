"""The log of a job, which the job itself writes, kept below a limit.  Standard library only.

The job's processes append to a plain file, so that the shim never delays them.  When the file is too long its oldest
blocks are given back to the file system (fallocate(2), FALLOC_FL_PUNCH_HOLE): its size and all offsets stay, and the
deleted part reads as zeros.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time

LOOK_S = 2.0
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
_libc = ctypes.CDLL(None, use_errno=True)
MARK = "[carpool: the first {} bytes of this log have been deleted, because a log is limited to {} bytes (job_log)]\n"


class JobLog:
    """One attempt's log.  ``limit``: the most bytes kept, not counting those written between two looks."""

    def __init__(self, path: str, limit: int) -> None:
        # Not opened for appending: the mark is written into the middle.
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._limit = limit
        self._begin = 0  # bytes before this offset are deleted
        self._due = 0.0

    def look(self) -> None:
        """Delete the oldest part of a log that has become too long; called now and then."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + LOOK_S
            with contextlib.suppress(OSError):  # a log that is too long must not end the job
                self._shorten()

    def close(self) -> None:
        """Shorten the log a last time and close it: the job has ended, and writes no more."""
        with contextlib.suppress(OSError):
            self._shorten()
        os.close(self._fd)

    def _shorten(self) -> None:
        status = os.fstat(self._fd)
        if status.st_size < self._begin:  # the job has cut its log itself
            self._begin = 0
        if status.st_size - self._begin <= self._limit:
            return
        # A quarter more than necessary, so that not every look deletes something.
        begin = (status.st_size - self._limit * 3 // 4) // status.st_blksize * status.st_blksize
        if begin > self._begin and _punch(self._fd, begin):
            self._begin = begin
            # On a full disk there is no mark.
            os.pwrite(self._fd, MARK.format(begin, self._limit).encode(), begin)


def _punch(fd: int, end: int) -> bool:
    """Delete everything before ``end``.  Returns False if the file system cannot; logs then have no limit."""
    arguments = ctypes.c_int64(0), ctypes.c_int64(end)
    return bool(_libc.fallocate(ctypes.c_int(fd), ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE), *arguments) == 0)
