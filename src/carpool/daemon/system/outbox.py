"""Packets for a socket whose other end may not read: they wait in order, and senders do not wait.

A limited number may wait, with a limited number of descriptors (`carpool.daemon.system.in_flight`); beyond that,
nothing more is sent.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from carpool.daemon.system.in_flight import InFlight, Unread
from carpool.protocol import packets

RETRY_S = 0.1
MOST_WAITING = 1024  # packets
#: Too many descriptors are in flight that have not been received, or the kernel has no memory for another packet.
_FULL = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)


class Outbox:
    """The packets of one SOCK_SEQPACKET socket to a process of the user whose descriptors ``account`` counts.

    ``emptied`` is called when all waiting packets have been sent, ``overfull`` once, with the reason, soon after too
    many would have had to wait.
    """

    def __init__(
        self,
        connection: socket.socket,
        account: InFlight,
        overfull: Callable[[str], None],
        emptied: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket = connection
        self._account = account
        self._overfull = overfull
        self._emptied = emptied
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        self._waiting_fds = 0
        self._unread = Unread(connection)
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        account.join(self)

    @property
    def empty(self) -> bool:
        """Whether everything has been sent."""
        return not self._waiting

    @property
    def in_flight(self) -> int:
        """Descriptors that wait, or whose packets the process may not have received."""
        return self._waiting_fds + self._unread.count

    def look(self) -> None:
        """Forget packets that the process has received."""
        self._unread.look()

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send now, or later with duplicates of the descriptors.  Raises OSError if the other end is gone."""
        why = self._account.make_room(len(fds)) if fds else ""
        if len(self._waiting) >= MOST_WAITING:
            why = f"{MOST_WAITING} packets wait for it"
        if why:
            self.give_up(why)
        if not self.closed and (self._waiting or not self._sent(data, fds)):
            self._waiting.append((data, _duplicates(fds)))
            self._waiting_fds += len(fds)
            self._wait()

    def give_up(self, why: str) -> None:
        """Stop sending, and have the connection closed."""
        if not self.closed:
            self.close()
            asyncio.get_running_loop().call_soon(self._overfull, f"a process of it does not read: {why}")

    def close(self) -> None:
        """Stop sending, before the socket is closed.  Repeated calls do no harm."""
        self.clear()
        if not self.closed:
            self.closed = True
            self._account.leave(self, self._unread)

    def clear(self) -> None:
        """Drop the packets that wait."""
        self._stop_waiting()
        while self._waiting:
            self._next_is_over()

    def _next_is_over(self) -> None:
        fds = self._waiting.popleft()[1]
        self._waiting_fds -= len(fds)
        for fd in fds:
            os.close(fd)

    def _sent(self, data: bytes, fds: Sequence[int]) -> bool:
        try:
            packets.send(self._socket, data, fds, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._flush)
            return False
        self._unread.add(len(fds))
        return True

    def _wait(self) -> None:
        if self._timer is None:
            asyncio.get_running_loop().add_writer(self._socket, self._flush)

    def _stop_waiting(self) -> None:
        asyncio.get_running_loop().remove_writer(self._socket)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        self._stop_waiting()
        while self._waiting:
            data, fds = self._waiting[0]
            try:
                if not self._sent(data, fds):
                    self._wait()
                    return
            except OSError:
                self.clear()  # the other end is gone, which its pidfd reports
                return
            self._next_is_over()
        self._emptied()


def _duplicates(fds: Sequence[int]) -> list[int]:
    """Duplicate all descriptors.  Raises OSError."""
    found: list[int] = []
    try:
        for fd in fds:
            found.append(os.dup(fd))  # noqa: PERF401 - earlier duplicates are closed below
    except OSError:
        for fd in found:
            os.close(fd)
        raise
    return found
