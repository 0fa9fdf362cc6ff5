"""The order in which the kernel kills when memory is exhausted: a job before its shim.  Standard library only.

The number of processes of a control group that the kernel has killed for want of host memory.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: Added to a process's share of the machine's memory, in thousandths (``oom_score_adj``, proc(5)).
JOB = 500
SHIM = 0
_FILE = "/proc/self/oom_score_adj"
ROOT = "/sys/fs/cgroup"


class OomScore:
    """The score of this process, opened while it is root: afterwards the kernel denies its user access to the file.

    Values are never lowered below what the process began with, unless that was the daemon's, below zero.  Where there
    is no such file, or it cannot be written, everything stays as it is.
    """

    def __init__(self, path: str = _FILE) -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def raise_to(self, least: int) -> None:
        """Raise the score of this process and all its descendants, which cannot go below it again without privileges.

        Written in any case: the value that root writes is the lower bound from then on.
        """
        self._write(max(least, self._value()))

    @contextmanager
    def raised_for_children(self, least: int) -> Iterator[None]:
        """Give processes that are forked inside the block, and their descendants, at least this score."""
        before = self._value()
        self._write(max(least, before))
        try:
            yield
        finally:
            self._write(before)

    def close(self) -> None:
        """Close the file; the score stays as it is."""
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


def kill_counter(root: str = ROOT, groups: str = "/proc/self/cgroup") -> str | None:
    """Return the file that counts for this process's group; None if there is none.

    The file is that of cgroup version 2, else of version 1.  A group without the controller is counted with the nearest
    group above that has it.  A process that is moved to another group afterwards goes on reading the same file.
    """
    try:
        with open(groups) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    for _, controllers, path in lines:
        if not controllers:
            found = _nearest(root, path, "memory.events")
        elif "memory" in controllers.split(","):
            found = _nearest(f"{root}/memory", path, "memory.oom_control")
        else:
            continue
        if found is not None:
            return found
    return None


def kills_in_group(counter: str | None) -> int | None:
    """Return the count, which only rises; None if it cannot be read.  ``counter``: see `kill_counter`."""
    try:
        with open(counter or os.devnull) as file:
            for line in file:
                word, _, number = line.partition(" ")
                if word == "oom_kill":
                    return int(number)
    except (OSError, ValueError):
        return None
    return None


def _nearest(top: str, path: str, name: str) -> str | None:
    while True:
        file = f"{top}{path.rstrip('/')}/{name}"
        if _counts(file):
            return file
        if path in ("", "/"):
            return None
        path = path.rpartition("/")[0]


def _counts(file: str) -> bool:
    return kills_in_group(file) is not None
