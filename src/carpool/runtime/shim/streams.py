"""The destinations of a job's standard output and standard error: its log, or files that its user has named.

The user's files are opened by the process that becomes the job, and so with the user's own rights.  Standard library
only.

The log of a job, which the job itself writes, kept below a limit.  Standard library only.

The job's processes append to a plain file, so that the shim never delays them.  When the file is too long its oldest
blocks are given back to the file system (fallocate(2), FALLOC_FL_PUNCH_HOLE): its size and all offsets stay, and the
deleted part reads as zeros.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import time

#: Bytes at the end that are searched for messages about memory (`carpool.daemon.jobs.oom_detection`).
TAIL_BYTES = 16 * 1024
MARK = "[carpool: the end of {}]\n"
LOOK_S = 2.0
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
_libc = ctypes.CDLL(None, use_errno=True)
LIMIT_MARK = (
    "[carpool: the first {} bytes of this log have been deleted, because a log is limited to {} bytes (job_log)]\n"
)


class Streams:
    """The streams of one attempt.  ``output`` and ``error``: paths, or None; without ``error`` both use one file."""

    def __init__(self, log: str, output: str | None, error: str | None, *, first: bool) -> None:
        self._log = log
        self._first = first  # whether this is the first attempt: later attempts append
        self.output = output or log
        self.error = error or self.output
        self._begin = 0 if first else _size(self.error)  # where the output of this attempt begins

    def take_over(self) -> None:
        """Redirect the streams, in the process that becomes the job.  Raises OSError, with the path."""
        out = self._opened(self.output)
        error = out if self.error == self.output else self._opened(self.error)
        for source, target in ((os.open("/dev/null", os.O_RDONLY), 0), (out, 1), (error, 2)):
            os.dup2(source, target)

    def _opened(self, path: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        if path == self._log:
            return os.open(path, flags, 0o600)
        # Non-blocking: a job that waits for the reader of a pipe before it has begun could not be ended.
        fd = os.open(path, flags | os.O_NONBLOCK | (os.O_TRUNC if self._first else 0), 0o666)
        os.set_blocking(fd, True)
        return fd

    def keep_end(self) -> None:
        """Copy the end of what a job wrote to a user's file into the log, where the daemon can read it."""
        if self.error == self._log:
            return
        with contextlib.suppress(OSError):  # a file that is gone by now has no end
            end = _end_of(self.error, self._begin)
            fd = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, MARK.format(self.error).encode(errors="surrogateescape") + end)
            finally:
                os.close(fd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - pathlib would cost a third of the start-up time
    except OSError:  # the file does not exist yet
        return 0


def _end_of(path: str, begin: int) -> bytes:
    """Return the end of a file, from ``begin`` on unless the file has been truncated since."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would take data from its reader
            return b""
        begin = begin if begin <= status.st_size else 0
        return os.pread(fd, TAIL_BYTES, max(begin, status.st_size - TAIL_BYTES))
    finally:
        os.close(fd)


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
            os.pwrite(self._fd, LIMIT_MARK.format(begin, self._limit).encode(), begin)


def _punch(fd: int, end: int) -> bool:
    """Delete everything before ``end``.  Returns False if the file system cannot; logs then have no limit."""
    arguments = ctypes.c_int64(0), ctypes.c_int64(end)
    return bool(_libc.fallocate(ctypes.c_int(fd), ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE), *arguments) == 0)
