"""Packets for a socket whose other end may not read: they wait, in order, and nobody waits for them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from carpool.protocol import packets

RETRY_S = 0.1
#: So many descriptors are on their way that nobody has fetched; or the kernel has no memory for another packet.
_FULL = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)


class Outbox:
    """Of one SOCK_SEQPACKET socket.  ``emptied`` is called when everything that had to wait has been sent."""

    def __init__(self, connection: socket.socket, emptied: Callable[[], None] = lambda: None) -> None:
        self._socket = connection
        self._emptied = emptied
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def empty(self) -> bool:
        return not self._waiting

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Now, or later with duplicates of the descriptors.  Raises OSError if the other end is gone."""
        if self._waiting or not self._sent(data, fds):
            self._waiting.append((data, [os.dup(fd) for fd in fds]))
            self._wait()

    def clear(self) -> None:
        """What waits is sent to nobody."""
        self._stop_waiting()
        while self._waiting:
            _close(self._waiting.popleft()[1])

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
                self.clear()  # the other end is gone: a pidfd tells
                return
            self._waiting.popleft()
            _close(fds)
        self._emptied()


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
