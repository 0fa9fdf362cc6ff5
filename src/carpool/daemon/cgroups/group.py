"""Control groups: directories whose files the kernel reads and writes, and what is left in those of ended attempts."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import time
from dataclasses import dataclass
from pathlib import Path

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.errors import problems
from carpool.daemon.system.processes import state_of
from carpool.protocol.packets import readable

#: Errors of a group that has been removed; the second one, if that was after its file had been opened.
GONE = errno.ENOENT, errno.ENODEV
PROCESSES, EVENTS, KILL, SUBTREE = "cgroup.procs", "cgroup.events", "cgroup.kill", "cgroup.subtree_control"
PATIENCE_S = 5.0  # for processes that are stuck in the kernel


@dataclass(frozen=True, slots=True)
class Group:
    """A control group.  Every method may raise OSError; a group that does not exist has no processes."""

    path: Path

    def make(self) -> None:
        """Create the group, and the groups above it, if it does not exist yet."""
        self.path.mkdir(mode=0o755, parents=True, exist_ok=True)

    def write(self, name: str, text: str) -> None:
        """Write the whole text to a file of the group."""
        fd = os.open(self.path / name, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            if os.write(fd, text.encode()) < len(text):
                raise OSError(errno.EIO, f"{name} took a part of {text!r} only")
        finally:
            os.close(fd)

    def words(self, name: str) -> list[str]:
        """Return the words in a file of the group."""
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
            raise PermissionError(f"process {pid} does not belong to uid {owner}")
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


@dataclass(frozen=True, slots=True)
class GroupRemains:
    """The groups of one attempt that is over.

    ``group``: the one of version 2, which can be killed; ``shims``: where the shim belongs; ``further``: of version 1;
    ``shim``: its process, if that may be there still.
    """

    job: JobRecord
    group: Group | None = None
    shims: Group | None = None
    further: tuple[Group, ...] = ()
    shim: int | None = None

    def pids(self) -> set[int]:
        """Return the processes that are left, without the shim."""
        try:
            return set() if self.group is None else self.group.pids() - {self.shim}
        except OSError:
            return set()

    def removed(self) -> bool:
        """Remove the groups.  False: processes are left, or that cannot be known at present."""
        try:
            if self.group is not None and self.group.populated():
                return False
            for group in (*self.further, *([] if self.group is None else [self.group])):
                group.remove()
        except OSError:
            return False
        return True

    def end(self) -> list[str]:
        """Kill what is left, wait until it is gone, and remove the groups.  Takes time.  Returns what has failed."""
        return problems(f"the control group of job {self.job.id} cannot be ended", self._end)

    def _end(self) -> None:
        if self.group is not None and self._shim_is_out(self.group):
            end_group(self.group)
        self.removed()

    def _shim_is_out(self, group: Group) -> bool:
        """Take the shim of a short job out, if it has not left yet, and return whether it is out.

        A shim that cannot leave has ended the job by its own means.
        """
        if self.shim is None or self.shims is None or self.shim not in group.pids():
            return True
        try:
            move(self.shim, self.job.owner, self.shims, self.shims)
        except ProcessLookupError:
            return True
        return self.shim not in group.pids()


def end_group(group: Group) -> None:
    """Kill what is in a group of version 2, wait until it is gone, and remove it.  Takes time.  Raises OSError."""
    if group.populated():
        group.kill()
    if not group.wait_empty(PATIENCE_S):
        raise OSError(errno.EBUSY, f"processes {sorted(group.pids())} do not end")
    group.remove()


def group_name(job: JobId, attempt: int) -> str:
    """Return the name of one attempt's group; as with files, the first attempt is not numbered."""
    return f"job-{job}" if attempt == 1 else f"job-{job}.{attempt}"


def notifier_name(pid: int) -> str:
    """Return the name of the group of a process that sends a notice."""
    return f"notice-{pid}"


def is_notifiers(name: str) -> bool:
    """Whether a group has a name from `notifier_name`."""
    return name.startswith("notice-")


def attempt_of(name: str) -> tuple[JobId, int] | None:
    """Return job and attempt from a group's name; None: it is not the group of a job."""
    found = re.fullmatch(r"job-(\d+)(?:\.(\d+))?", name)
    return None if found is None else (int(found[1]), int(found[2] or 1))
