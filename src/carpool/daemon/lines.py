"""The ways by which a job's processes reach the daemon: one channel for each.

The first one is inherited from the shim by the job's main process; the others come through the job's door.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from carpool.core.model import JobId
from carpool.daemon.outbox import Outbox
from carpool.daemon.sessions import peer_credentials

#: The name of the inherited one; the others have those under which the shim keeps them.
INHERITED = ""
PREFIX = "channel:"


@dataclass(eq=False, slots=True)
class Line:
    """The daemon's end of one channel."""

    job: JobId
    name: str
    socket: socket.socket
    outbox: Outbox
    pid: int | None  # of the process that came through the door; of the inherited one it says so itself
    waits: bool = False  # its HELLO cannot be answered yet, and stays unread
    over: bool = False  # nobody holds the other end any more


class Lines:
    """All of all jobs."""

    def __init__(self) -> None:
        self._of: dict[JobId, dict[str, Line]] = {}

    def add(self, job: JobId, name: str, fd: int, emptied: Callable[[], None]) -> Line:
        """Owns ``fd``."""
        channel = socket.socket(fileno=fd)
        pid = None if name == INHERITED else peer_credentials(channel)[0]
        line = Line(job, name, channel, Outbox(channel, emptied), pid)
        self._of.setdefault(job, {})[name] = line
        return line

    def get(self, job: JobId, name: str) -> Line | None:
        return self._of.get(job, {}).get(name)

    def all(self, job: JobId) -> tuple[Line, ...]:
        return tuple(self._of.get(job, {}).values())

    def jobs(self) -> tuple[JobId, ...]:
        return tuple(self._of)

    def close(self, line: Line) -> None:
        asyncio.get_running_loop().remove_reader(line.socket)
        line.outbox.clear()
        line.socket.close()
        lines = self._of[line.job]
        del lines[line.name]
        if not lines:
            del self._of[line.job]
