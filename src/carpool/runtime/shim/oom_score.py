"""Whom the kernel kills first when the machine's memory is exhausted: a job, not its shim.  Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: Added to a process's share of the machine's memory, in thousandths (``oom_score_adj``, proc(5)).
JOB = 500
SHIM = 0
_FILE = "/proc/self/oom_score_adj"


class OomScore:
    """That of this process.  Opened while the process is root: afterwards the kernel keeps the file from its user.

    Values are never lowered below what the process began with, unless that was the daemon's, below zero.  Where there
    is no such file, or it cannot be written, everything stays as it is.
    """

    def __init__(self, path: str = _FILE) -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def raise_to(self, least: int) -> None:
        """For this process and all that come from it; without privileges they cannot go below it again.

        Written in any case: what root writes is the lower bound from then on.
        """
        self._write(max(least, self._value()))

    @contextmanager
    def raised_for_children(self, least: int) -> Iterator[None]:
        """Processes that are forked meanwhile, and all that come from these, have at least this value."""
        before = self._value()
        self._write(max(least, before))
        try:
            yield
        finally:
            self._write(before)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _value(self) -> int:
        try:
            return int(os.pread(self._fd, 16, 0))
        except (OSError, ValueError):
            return 0

    def _write(self, value: int) -> None:
        with suppress(OSError):
            os.pwrite(self._fd, str(value).encode(), 0)
