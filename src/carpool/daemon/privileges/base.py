"""The operations for which a daemon of several users needs rights, and processes that work for the daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.pidwatch import PidWatch
from carpool.daemon.system.processes import state_of

log = logging.getLogger(__name__)
SHIM = Path(__file__).resolve().parents[2] / "runtime" / "shim" / "__main__.py"
NOTIFIER = Path(__file__).resolve().parents[2] / "runtime" / "notifier.py"
REMOVER = Path(__file__).resolve().parents[1] / "hooks" / "remove_trees.py"
AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started for the daemon.

    ``fd``: its pidfd, which the receiver of the child closes; None: the daemon is its parent, so the pid stays valid
    until `collect`.
    """

    pid: int
    fd: int | None = None
    popen: subprocess.Popen[bytes] | None = None

    def collect(self) -> None:
        """Collect the process, which has ended; nothing of it is left then."""
        if self.popen is not None:
            self.popen.wait()


class Privileges(Protocol):
    """Jobs are named by their numbers, owners by their uids.  Every operation may raise OSError."""

    @property
    def serves_others(self) -> bool:
        """Whether users other than the daemon's have jobs here."""
        ...

    @property
    def suspends(self) -> bool:
        """Whether the driver suspends and resumes jobs on the daemon's behalf."""
        ...

    def why_not(self, uid: int) -> str:
        """Explain why no jobs of this user can be started; empty: they can."""
        ...

    def create_directory(self, job: int, owner: int, gid: int) -> None:
        """Make ``jobs/N``, owned by ``owner``, unless it exists."""
        ...

    def open_owned(self, path: Path, owner: int) -> int:
        """Open a regular file of ``owner`` in ``jobs/N`` for reading; never through a link, never waiting."""
        ...

    def spawn_shim(self, job: int, attempt: int, owner: int, gid: int) -> Child | None:
        """Start a shim, which holds the job's lock; return None while another one lives."""
        ...

    def signal(self, pidfd: int, owner: int, number: int) -> None:
        """Send a signal to a process of ``owner``.  Raises ProcessLookupError when it has ended."""
        ...

    def environment(self, pid: int, owner: int) -> bytes:
        """Return the environment that a process of ``owner`` was started with (proc_pid_environ(5))."""
        ...

    def set_aside(self, job: int) -> None:
        """Move ``jobs/N`` to ``removed/N``."""
        ...

    def spawn_remover(self, jobs: Sequence[int]) -> Child:
        """Start a process that empties ``removed/N`` of jobs of one owner, with the owner's rights only."""
        ...

    def spawn_notifier(self, fd: int, owner: int, gid: int) -> Child:
        """Start a process of ``owner`` that reads from the socket ``fd`` which notice to send to which target."""
        ...

    def kill(self, child: Child, owner: int) -> None:
        """Kill a child that is no shim.  Raises PermissionError while it is not yet its owner's process."""
        ...

    def watch(self, lost: Callable[[], None]) -> None:
        """Call ``lost`` once if these operations can never be carried out again."""
        ...

    def close(self) -> None:
        """Release the privileges; children go on."""
        ...


def signal_process(privileges: Privileges, pid: int, owner: int, number: signal.Signals) -> None:
    """Signal a process, unless it has ended or is not the user's.  Raises OSError if the signal is not permitted."""
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


def try_to_signal(privileges: Privileges, pid: int, owner: int, number: signal.Signals) -> None:
    """Signal a process as `signal_process` does; what keeps the signal from being sent is logged."""
    try:
        signal_process(privileges, pid, owner, number)
    except OSError as error:
        log.error("process %d of uid %d cannot be signalled: %s", pid, owner, error, extra=caused_by(owner))


async def ended_within(privileges: Privileges, child: Child, owner: int, patience_s: float) -> bool:
    """Return whether the child has ended by itself; it has ended in any case when this returns or is cancelled."""
    ended = asyncio.Event()
    PidWatch(child.pid, ended.set, child.fd)
    try:
        await asyncio.wait_for(ended.wait(), patience_s)
    except TimeoutError:
        return False
    finally:
        await asyncio.shield(_end(privileges, child, owner, ended))
    return True


async def _end(privileges: Privileges, child: Child, owner: int, ended: asyncio.Event) -> None:
    """Kill the child until it has ended: one just started is not yet its owner's and cannot be killed for a moment."""
    while not ended.is_set():
        with suppress(OSError):
            privileges.kill(child, owner)
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), AGAIN_S)
    child.collect()


def start_isolated(
    program: Path, arguments: Sequence[object], fds: Sequence[int], stderr: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a Python file that needs the standard library only, in a session of its own; it inherits ``fds``.

    ``stderr``: as for `subprocess.Popen`.  Raises OSError.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(program), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        cwd="/",
        env={"LANG": "C.UTF-8"},
        pass_fds=fds,
        start_new_session=True,
    )
