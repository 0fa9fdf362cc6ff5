"""Processes of a job that outlive its shim: they are killed before anything that they use is given to other jobs.

The kernel kills a job's main process with its shim (``PR_SET_PDEATHSIG``), but none of the processes below.  A shim
ends those itself, but not a process that has joined the job from elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from carpool.core.model import JobId
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.system.processes import below, has_not_ended, state_of
from carpool.protocol.packets import SESSION, lives, readable, stat_fields
from carpool.protocol.paths import Home

PROC = Path("/proc")
PATIENCE_S = 5.0  # for processes that are stuck in the kernel
PAUSE_S = 0.01  # before the next look when none of the processes could be killed


@dataclass(frozen=True, slots=True)
class Orphans:
    """The live processes of ``job``, found by their environment or by their session.

    ``session``: that of the job's main process, valid only just after the shim has ended, as its number may be reused
    later. ``holder``: a process that is known to belong to the job.
    """

    privileges: Privileges
    home: Home
    job: JobId
    owner: int
    session: int | None = None
    holder: int | None = None

    def pids(self) -> list[int]:
        """List the pids of all such processes at this moment."""
        return [int(path.name) for path in PROC.iterdir() if path.name.isdigit() and self._is_one(int(path.name))]

    def end(self) -> None:
        """Kill the processes and wait until all are gone.  Raises OSError if some do not end."""
        _end(self.privileges, self.owner, self.pids, self._is_one)

    def _is_one(self, pid: int) -> bool:
        try:
            if (PROC / str(pid)).stat().st_uid != self.owner:
                return False
            fields = stat_fields(pid)
            known = pid == self.holder or int(fields[SESSION]) == self.session
            return lives(fields) and (known or self._is_marked(pid))
        except (OSError, IndexError):
            return False

    def _is_marked(self, pid: int) -> bool:
        marks = {f"CARPOOL_JOB={self.job}".encode(), b"CARPOOL_HOME=" + os.fsencode(self.home.root)}
        return marks <= set(self.privileges.environment(pid, self.owner).split(b"\0"))


def end_tree(privileges: Privileges, owner: int, root: int) -> None:
    """Kill a process of ``owner`` and all its descendants, the root last, and wait until they are gone.  Takes time.

    Raises OSError if some do not end; the root is killed in any case.
    """

    def is_one(pid: int) -> bool:
        return has_not_ended(pid) and bool(state_of(pid, owner))

    try:
        _end(privileges, owner, lambda: [pid for pid in below(root) if is_one(pid)], is_one)
    finally:
        _end(privileges, owner, lambda: [root] if is_one(root) else [], is_one)


def _end(privileges: Privileges, owner: int, find: Callable[[], list[int]], is_one: Callable[[int], bool]) -> None:
    """Kill processes, including those that they start meanwhile, and wait until all are gone.

    After any were found, none must be found twice: one whose parent ends while /proc is read is in no tree.  Raises
    OSError if some do not end.
    """
    deadline, looks = time.monotonic() + PATIENCE_S, 1
    while looks:
        pids = find()
        looks = 2 if pids else looks - 1
        if pids and time.monotonic() >= deadline:
            raise OSError(errno.EBUSY, f"processes {pids} do not end")
        with contextlib.ExitStack() as opened:
            killed = [fd for pid in pids if (fd := _killed(privileges, owner, pid, is_one, opened)) is not None]
            for fd in killed:
                readable(fd, deadline - time.monotonic())
        if pids and not killed:
            time.sleep(PAUSE_S)


def _killed(
    privileges: Privileges, owner: int, pid: int, is_one: Callable[[int], bool], opened: contextlib.ExitStack
) -> int | None:
    """Kill a process and return its pidfd, which ``opened`` closes.

    None: the process has ended, and the pid may belong to another one.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    opened.callback(os.close, fd)
    if not is_one(pid):
        return None
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the process has changed its user meanwhile
        privileges.signal(fd, owner, signal.SIGKILL)
    return fd
