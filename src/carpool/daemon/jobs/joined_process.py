"""The process of a job that has joined: Carpool has not started it, and is not its parent."""

from __future__ import annotations

import os
from dataclasses import dataclass

from carpool.daemon.system.process_state import namespaced_pids


@dataclass(slots=True)
class JoinedProcess:
    """As the kernel says: the process at the other end of a session.

    ``started``: when, in ticks since the machine did; with the number that is the process, also after a restart of the
    daemon.  ``last_word``: the code with which it said it would exit.
    """

    pid: int
    started: int
    pidfd: int
    last_word: int | None = None
    left: bool = False  # it goes on without Carpool

    @property
    def identity(self) -> tuple[int, int]:
        """What no other process has, or has had."""
        return self.pid, self.started

    @property
    def begins_namespace(self) -> bool:
        """Whether it is the first process of a container, which a signal does not end that it does not handle."""
        return len(pids := namespaced_pids(self.pid)) > 1 and pids[-1] == 1

    def duplicate(self) -> int:
        """Its pidfd, for whoever gets this one to close.  Raises OSError."""
        return os.dup(self.pidfd)

    def close(self) -> None:
        """Nothing is to be asked of it any more."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def heard_last_word(self, code: int) -> None:
        """The exit code that the process has announced."""
        self.last_word = code

    def leave(self) -> None:
        """The process goes on without Carpool."""
        self.left = True
