"""What a daemon that serves several users needs rights for: processes and files that are not its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from carpool.daemon.system.process_state import state_of

SHIM = Path(__file__).resolve().parents[2] / "runtime" / "shim" / "__main__.py"
NOTIFIER = Path(__file__).resolve().parents[2] / "runtime" / "notifier.py"
REMOVER = Path(__file__).resolve().parents[1] / "retention" / "remove_trees.py"


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started for the daemon.

    ``fd``: its pidfd, for whoever gets the child to close; None: the daemon is its parent, so its number stays its own
    until `collect`.
    """

    pid: int
    fd: int | None = None
    popen: subprocess.Popen[bytes] | None = None

    def collect(self) -> None:
        """It has ended: nothing of it is left then."""
        if self.popen is not None:
            self.popen.wait()


class Privileges(Protocol):
    """Jobs are named by their numbers; owners by their uids.  Every operation may raise OSError."""

    @property
    def serves_others(self) -> bool:
        """Whether users other than the daemon's have jobs here."""
        ...

    @property
    def suspends(self) -> bool:
        """Whether the driver suspends and resumes jobs on the daemon's behalf."""
        ...

    def why_not(self, uid: int) -> str:
        """Why no jobs of this user can be started; empty: they can."""
        ...

    def create_directory(self, job: int, owner: int, gid: int) -> None:
        """``jobs/N``, of its owner, unless there is one."""
        ...

    def open_owned(self, path: Path, owner: int) -> int:
        """A regular file of ``owner`` in ``jobs/N``, for reading; never through a link, never waiting."""
        ...

    def spawn_shim(self, job: int, attempt: int, owner: int, gid: int) -> Child | None:
        """A new shim, which holds the job's lock; None while another one lives."""
        ...

    def signal(self, pidfd: int, owner: int, number: int) -> None:
        """To a process of ``owner``.  Raises ProcessLookupError when it has ended."""
        ...

    def environment(self, pid: int, owner: int) -> bytes:
        """What a process of ``owner`` was started with (proc_pid_environ(5))."""
        ...

    def set_aside(self, job: int) -> None:
        """Move ``jobs/N`` to ``removed/N``."""
        ...

    def spawn_remover(self, jobs: Sequence[int]) -> Child:
        """A process that empties ``removed/N`` of jobs of one owner, with the owner's rights only."""
        ...

    def spawn_notifier(self, fd: int, owner: int, gid: int) -> Child:
        """A process of ``owner`` that reads from the socket ``fd`` whom it is to tell what."""
        ...

    def kill(self, child: Child, owner: int) -> None:
        """One that is no shim.  Raises PermissionError while it is not yet its owner's process."""
        ...

    def watch(self, lost: Callable[[], None]) -> None:
        """``lost`` is called once if these operations can never be carried out again."""
        ...

    def close(self) -> None:
        """Children go on."""
        ...


def signal_process(privileges: Privileges, pid: int, owner: int, number: signal.Signals) -> None:
    """Nothing happens if the process has ended, or is not that user's.  Raises OSError if it may not be sent."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if state_of(pid, owner):
            with suppress(ProcessLookupError):
                privileges.signal(fd, owner, number)
    finally:
        os.close(fd)
