"""Descriptors on their way to users' processes: how many there are for each user, and how many are allowed.

A descriptor is on its way until the process has received it: it waits in the daemon as a duplicate, or in the kernel,
which allows the daemon's user a total number and refuses all further ones.
"""

from __future__ import annotations

import array
import fcntl
import resource
import socket
import termios
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from carpool.core.model import JobId
from carpool.daemon.system.peer import person_of

#: Descriptors in flight to one user take at most one in this many of the daemon's descriptors.
SHARE = 8
#: The least that the kernel counts for a packet that has not been received.
LEAST_PACKET_BYTES = 512
#: Most packets sent until the next look; a channel of the usual size holds about as many.
MOST_UNSEEN = 256


def most_in_flight() -> int:
    """Return how many descriptors may be in flight to the processes of one user together."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE


class Unread:
    """Packets of one socket that the kernel still has, and how many descriptors are in those."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._packets: deque[int] = deque()  # the descriptors of each
        self.count = 0

    def add(self, fds: int) -> None:
        """Count a packet that has been sent."""
        self._packets.append(fds)
        self.count += fds
        if len(self._packets) > MOST_UNSEEN:
            self.look()

    def look(self) -> None:
        """Forget packets that have been received."""
        unread = _unread_bytes(self._socket) // LEAST_PACKET_BYTES
        while len(self._packets) > unread:
            self.count -= self._packets.popleft()

    def outlive(self) -> bool:
        """Go on counting after the socket is closed; return False if nothing is left to count."""
        self.look()
        if self.count:
            with suppress(OSError):  # there is no descriptor left for the duplicate
                self._socket = self._socket.dup()
                return True
        return False

    def is_over(self) -> bool:
        """Return whether the descriptors sent through a closed socket have been received or dropped."""
        self.look()
        if not self.count:
            self._socket.close()
        return not self.count


class CountedSender(Protocol):
    """A queue of packets to one process (`carpool.daemon.system.outbox`)."""

    @property
    def in_flight(self) -> int:
        """The queue's descriptors in flight; some may have been received since the last look."""
        ...

    def look(self) -> None:
        """Forget packets that have been received."""
        ...

    def give_up(self, why: str) -> None:
        """Stop sending, and have the connection closed."""
        ...


class InFlight:
    """The descriptors in flight to one user."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._senders = set[CountedSender]()
        self._left: list[Unread] = []  # of connections that have been closed since

    def join(self, sender: CountedSender) -> None:
        """Count a sender's descriptors from now on."""
        self._senders.add(sender)

    def leave(self, sender: CountedSender, unread: Unread) -> None:
        """Remove a sender whose connection is closed; ``unread``: packets that the process may still hold there."""
        self._senders.discard(sender)
        self._left = [each for each in self._left if not each.is_over()]
        if unread.outlive():
            self._left.append(unread)

    def make_room(self, more: int) -> str:
        """Make room for ``more`` descriptors: over the limit, the largest senders give up.  Return why not, or ""."""
        most = most_in_flight()
        if self._count() + more <= most:
            return ""
        self._look()
        excess, why = (
            self._count() + more - most,
            f"{most} descriptors are on their way to processes of uid {self._uid}",
        )
        for sender in sorted(self._senders, key=lambda sender: -sender.in_flight):
            if excess > 0 and sender.in_flight:
                excess -= sender.in_flight
                sender.give_up(why)
        return why if excess > 0 else ""

    def _look(self) -> None:
        for sender in self._senders:
            sender.look()
        self._left = [each for each in self._left if not each.is_over()]

    def _count(self) -> int:
        return sum(sender.in_flight for sender in self._senders) + sum(each.count for each in self._left)


class InFlightTable:
    """The descriptors in flight to all users; listeners hear of jobs whose processes do not read."""

    def __init__(self) -> None:
        self._of: dict[int, InFlight] = {}
        self._listeners: list[Callable[[JobId, str], None]] = []

    def of(self, uid: int) -> InFlight:
        """Return the account of a user, who may be a person of many uids."""
        person = person_of(uid)
        return self._of.setdefault(person, InFlight(person))

    def listen(self, listener: Callable[[JobId, str], None]) -> None:
        """Call ``listener`` from now on: with a job, and why a connection of the job has been closed."""
        self._listeners.append(listener)

    def tell(self, job: JobId, why: str) -> None:
        """Tell the listeners that a connection of the job has been closed."""
        for listener in self._listeners:
            listener(job, why)


def _unread_bytes(connection: socket.socket) -> int:
    """Return the unread bytes as the kernel counts them; 0 once the process has received everything."""
    found = array.array("i", [0])
    fcntl.ioctl(connection, termios.TIOCOUTQ, found)
    return found[0]
