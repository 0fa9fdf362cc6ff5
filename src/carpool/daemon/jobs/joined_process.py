"""The process of a job that has joined: Carpool did not start this process and is not its parent."""

from __future__ import annotations

import os
from dataclasses import dataclass

from carpool.daemon.system.processes import namespaced_pids


@dataclass(slots=True)
class JoinedProcess:
    """The process at the other end of a session, as the kernel identifies it.

    ``started``: start time in ticks since boot, which together with the pid identifies the process, also after a
    restart of the daemon.  ``last_word``: the exit code that the process has announced.
    """

    pid: int
    started: int
    pidfd: int
    last_word: int | None = None
    left: bool = False  # the process goes on without Carpool

    @property
    def identity(self) -> tuple[int, int]:
        """The pid and start time, a pair that no other process has or has had."""
        return self.pid, self.started

    @property
    def begins_namespace(self) -> bool:
        """Whether the process is the first of a container, so that a signal that it does not handle does not end it."""
        return len(pids := namespaced_pids(self.pid)) > 1 and pids[-1] == 1

    def duplicate(self) -> int:
        """Return a duplicate of the pidfd, which the caller closes.  Raises OSError."""
        return os.dup(self.pidfd)

    def close(self) -> None:
        """Close the pidfd; the process cannot be signalled or observed afterwards."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
