"""One control group: a directory whose files the kernel reads and writes."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from dataclasses import dataclass
from pathlib import Path

from carpool.daemon.system.processes import state_of
from carpool.protocol.packets import readable

#: Errors of a group that has been removed; the second one, if that was after its file had been opened.
GONE = errno.ENOENT, errno.ENODEV
PROCESSES, EVENTS, KILL, SUBTREE = "cgroup.procs", "cgroup.events", "cgroup.kill", "cgroup.subtree_control"


@dataclass(frozen=True, slots=True)
class Group:
    """A control group.  Every method may raise OSError; a group that does not exist has no processes."""

    path: Path

    def make(self) -> None:
        """Create the group, and the groups above it, if it does not exist yet."""
        self.path.mkdir(mode=0o755, parents=True, exist_ok=True)

    def write(self, name: str, text: str) -> None:
        fd = os.open(self.path / name, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            if os.write(fd, text.encode()) < len(text):
                raise OSError(errno.EIO, f"{name} took a part of {text!r} only")
        finally:
            os.close(fd)

    def words(self, name: str) -> list[str]:
        return (self.path / name).read_text().split()

    def pids(self) -> set[int]:
        """Return the processes that live in the group, those of groups below excepted."""
        try:
            return {int(word) for word in self.words(PROCESSES)}
        except FileNotFoundError:
            return set()

    def populated(self) -> bool:
        """Whether processes live in the group or in groups below.  For version 2."""
        try:
            return _populated((self.path / EVENTS).read_text())
        except FileNotFoundError:
            return False

    def kill(self) -> None:
        """Kill all processes of the group and of groups below at once, with those being forked.  For version 2."""
        try:
            self.write(KILL, "1")
        except OSError as error:
            if error.errno not in GONE:
                raise

    def wait_empty(self, seconds: float) -> bool:
        """Wait until no process is left in the group; False: ``seconds`` have passed before.  For version 2."""
        deadline = time.monotonic() + seconds
        try:
            file = open(self.path / EVENTS)  # noqa: SIM115 - closed below
        except FileNotFoundError:
            return True
        with file:
            poll = select.poll()
            poll.register(file, select.POLLPRI)
            while _populated(file.read()):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                poll.poll(left * 1000)
                file.seek(0)
        return True

    def children(self) -> list[Group]:
        """Return the groups directly below."""
        try:
            with os.scandir(self.path) as entries:
                return [Group(Path(entry.path)) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def remove(self) -> None:
        """Remove the group and the groups below.  Groups that have processes stay, and the groups above them."""
        try:
            self.path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            for child in self.children():
                child.remove()
            self.path.rmdir()


def move(pid: int, owner: int, group: Group, spare: Group) -> None:
    """Move a process of ``owner`` with its threads into ``group``.  Raises OSError, also for a process of another user.

    The pid of a process that ends meanwhile may be given to another process, of any user; that process is put into
    ``spare``, a group that is never killed.
    """
    handle = os.pidfd_open(pid)  # refuses 0, which would mean the daemon itself
    try:
        if not state_of(pid, owner):
            raise PermissionError(f"process {pid} is none of uid {owner}")
        group.write(PROCESSES, _padded(pid))
        if readable(handle):
            with contextlib.suppress(OSError):
                spare.write(PROCESSES, _padded(pid))
            raise ProcessLookupError(f"process {pid} has ended")
    finally:
        os.close(handle)


def _padded(pid: int) -> str:
    """Return the pid after blanks, which the kernel skips: the first half of a pid would be another process's pid."""
    return str(pid).rjust(32)


def _populated(events: str) -> bool:
    return "populated 1" in events.splitlines()
