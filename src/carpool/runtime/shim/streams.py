"""The destinations of a job's standard output and standard error: its log, or files that its user has named.

The user's files are opened by the process that becomes the job, and so with the user's own rights.  Standard library
only.
"""

from __future__ import annotations

import contextlib
import os
import stat

#: Bytes at the end that are searched for messages about memory (`carpool.daemon.jobs.oom_detection`).
TAIL_BYTES = 16 * 1024
MARK = "[carpool: the end of {}]\n"


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
