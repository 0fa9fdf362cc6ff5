"""Where a job's standard output and standard error go: its log, or files that its user has named.

The user's files are opened by the process that becomes the job, so with the user's own rights.  Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import stat

#: As much of the end as is searched for messages about memory (`carpool.daemon.jobs.oom_detection`).
TAIL_BYTES = 16 * 1024
MARK = "[carpool: the end of {}]\n"


class Streams:
    """Of one attempt.  ``output`` and ``error``: paths, or None; without ``error`` both streams go to one file."""

    def __init__(self, log: str, output: str | None, error: str | None, *, first: bool) -> None:
        self._log = log
        self._first = first  # of the job's attempts: the next ones add to what is there
        self.output = output or log
        self.error = error or self.output
        self._begin = 0 if first else _size(self.error)  # of what this attempt writes

    def take_over(self) -> None:
        """In the process that becomes the job.  Raises OSError, with the path."""
        out = self._opened(self.output)
        error = out if self.error == self.output else self._opened(self.error)
        for source, target in ((os.open("/dev/null", os.O_RDONLY), 0), (out, 1), (error, 2)):
            os.dup2(source, target)

    def _opened(self, path: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        if path == self._log:
            return os.open(path, flags, 0o600)
        # Not waiting: nobody could end a job that waits for the reader of a pipe before it has begun.
        fd = os.open(path, flags | os.O_NONBLOCK | (os.O_TRUNC if self._first else 0), 0o666)
        os.set_blocking(fd, True)
        return fd

    def keep_end(self) -> None:
        """Copy the end of what a job wrote to a file of its user's into the log, where the daemon can read it."""
        if self.error == self._log:
            return
        with contextlib.suppress(OSError):  # files that are gone by now have no end
            end = _end_of(self.error, self._begin)
            fd = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, MARK.format(self.error).encode(errors="surrogateescape") + end)
            finally:
                os.close(fd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - pathlib would cost a third of the start-up time
    except OSError:  # it is not there yet
        return 0


def _end_of(path: str, begin: int) -> bytes:
    """``begin``: what was there before does not count, unless the file has been cut since."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would take what others are to read
            return b""
        begin = begin if begin <= status.st_size else 0
        return os.pread(fd, TAIL_BYTES, max(begin, status.st_size - TAIL_BYTES))
    finally:
        os.close(fd)
