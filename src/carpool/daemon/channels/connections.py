"""The channels by which a job's processes reach the daemon: one for each process.

The job's main process inherits its channel from the shim; the others come through the job's attach socket.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from carpool.core.model import JobId
from carpool.daemon.jobs.seat_table import OwnedFd, release
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system.allowance import Allowance, Allowances
from carpool.daemon.system.in_flight import InFlightTable
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.outbox import Outbox
from carpool.daemon.system.peer import peer_credentials, person_of
from carpool.protocol.seat import Packet

log = logging.getLogger(__name__)
#: The name of the inherited channel; the others have the names under which the shim keeps them.
INHERITED = ""
PREFIX = "channel:"
MOST_CHANNELS = 256  # of a job, through its attach socket: as many as its shim keeps
#: Channels through attach sockets of one user's jobs may hold 1/`SHARE` of the daemon's descriptors.
SHARE = 4


@dataclass(eq=False, slots=True)
class Line:
    """The daemon's end of one channel."""

    job: JobId
    name: str
    socket: socket.socket
    outbox: Outbox
    pid: int | None  # of a process from the attach socket, or that has joined; a main process sends its own
    allowance: Allowance  # of the job's user
    owner: int
    person: int  # whom the owner counts as
    waits: bool = False  # its HELLO cannot be answered yet, and stays unread
    over: bool = False  # the other end is closed
    rest: asyncio.TimerHandle | None = None  # its user is over the rate: it is not read until then


def _channel(fd: int) -> socket.socket:
    try:
        channel = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        raise
    if (channel.family, channel.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        channel.close()
        raise OSError(errno.EPROTOTYPE, "not a channel")
    return channel


def most_through_doors() -> int:
    """Return how many channels through attach sockets one user's jobs may have together."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE


class JobConnections:
    """The channels of all jobs, and what is sent over them."""

    def __init__(self, jobs: JobTable, allowances: Allowances, in_flight: InFlightTable) -> None:
        self._jobs = jobs
        self._allowances = allowances
        self._in_flight = in_flight
        self._of: dict[JobId, dict[str, Line]] = {}
        self._through_doors = Counter[int]()  # by person

    def add(self, job: JobRecord, name: str, fd: int, emptied: Callable[[], None]) -> Line:
        """Add a channel, which owns ``fd``.  Raises OSError, or ValueError for a channel that no shim brings."""
        lines = self._of.get(job.id, {})
        known = name == INHERITED or name.startswith(PREFIX)
        if not known or name in lines or len(lines) > MOST_CHANNELS:
            os.close(fd)
            raise ValueError(f"{name[:80]!r} beside {len(lines)} channels")
        if name != INHERITED and self._through_doors[person_of(job.owner)] >= (most := most_through_doors()):
            os.close(fd)
            raise ValueError(f"one channel more than the {most} that processes of uid {job.owner} may have")
        channel = _channel(fd)
        joined = None if job.process is None else job.process.pid
        pid = joined if name == INHERITED else peer_credentials(channel)[0]
        account, overfull = self._in_flight.of(job.owner), partial(self._overfull, job.id, name)
        outbox = Outbox(channel, account, overfull, emptied)
        line = Line(job.id, name, channel, outbox, pid, self._allowances.of(job.owner), job.owner, person_of(job.owner))
        self._through_doors[line.person] += name != INHERITED
        self._of.setdefault(job.id, {})[name] = line
        return line

    def send(self, job: JobId, packet: Packet, memory: Sequence[OwnedFd] = ()) -> None:
        """Send to the attached process, in order, as soon as it reads; if the process is gone, its pidfd tells.

        Raises WrongOwner.
        """
        line = self.of_seat(job)
        if line is not None:
            self.answer(line, packet, memory)

    def answer(self, line: Line, packet: Packet, memory: Sequence[OwnedFd] = ()) -> None:
        """Send to one process of a job, in the same way.  Raises WrongOwner."""
        descriptors = release(memory, self._jobs.owner(line.job))
        try:
            line.outbox.send(packet.encode(), descriptors)
        except OSError as error:
            text = "cannot send %s to job %d: %s"
            log.warning(text, packet.type.name, line.job, error, extra=caused_by(self._jobs.owner(line.job)))

    def quiet(self, job: JobId) -> bool:
        """Whether the attached process has been sent everything."""
        line = self.of_seat(job)
        return line is None or line.outbox.empty

    def of_seat(self, number: JobId) -> Line | None:
        """Return the channel of the attached process."""
        job = self._jobs.live.get(number)
        return None if job is None else self.get(number, job.line)

    def leave_seat(self, job: JobRecord) -> None:
        """Drop what the attached process, which is gone, has not been sent: it is not meant for the next process."""
        line = self.get(job.id, job.line)
        if line is not None:
            line.outbox.clear()
        job.line = INHERITED

    def get(self, job: JobId, name: str) -> Line | None:
        """Return a channel of the job by its name; None: there is none."""
        return self._of.get(job, {}).get(name)

    def all(self, job: JobId) -> tuple[Line, ...]:
        """Return all channels of the job."""
        return tuple(self._of.get(job, {}).values())

    def jobs(self) -> tuple[JobId, ...]:
        """Return the jobs that have channels."""
        return tuple(self._of)

    def _overfull(self, job: JobId, name: str, why: str) -> None:
        """Close a channel that has too much to send, unless it is closed already, and say that the job cannot go on."""
        line = self.get(job, name)
        if line is not None and line.outbox.closed:
            self.close(line)
            self._in_flight.tell(job, why)

    def close(self, line: Line) -> None:
        """Close a channel, for reading and for sending."""
        asyncio.get_running_loop().remove_reader(line.socket)
        if line.rest is not None:
            line.rest.cancel()
        line.outbox.close()
        line.socket.close()
        self._through_doors[line.person] -= line.name != INHERITED
        lines = self._of[line.job]
        del lines[line.name]
        if not lines:
            del self._of[line.job]
