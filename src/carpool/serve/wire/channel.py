"""Frames over a Unix socket: `MessageChannel` blocks (workers), `AsyncChannel` is for event loops (the front).

A worker finds its front by two environment variables, not by its command line, which all users can read.
"""

from __future__ import annotations

import array
import asyncio
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from carpool.protocol.records import Kinds
from carpool.serve.oip.values import Tensor
from carpool.serve.wire.messages import PREFIX, Broken, Frame, Message, decode, encode, sizes

_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid
#: The kernel takes 1024 buffers at once.
_MOST_BUFFERS = 512
_ROOM_FOR_ONE = socket.CMSG_LEN(array.array("i").itemsize)


class Gone(Exception):
    """The peer has closed the connection."""


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process and user at the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


class MessageChannel:
    """A blocking channel for both directions.  ``kinds``: a union of the messages that may come."""

    def __init__(self, connection: socket.socket, kinds: Any) -> None:
        self._connection = connection
        self._incoming = _Incoming(kinds)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, message: Message, requests: Sequence[Sequence[Tensor]] = (), fd: int | None = None) -> None:
        """Send a message.  Raises Gone, TooMuch."""
        outgoing = _Outgoing(encode(message, requests), fd)
        try:
            outgoing.push(self._connection)
        except (BrokenPipeError, ConnectionResetError):
            raise Gone from None
        finally:
            outgoing.drop()

    def receive(self) -> Frame | None:
        """Receive a message; None if the peer has closed.  Raises Broken."""
        return self._incoming.pull(self._connection)

    def has_news(self) -> bool:
        """Whether a message has begun to arrive, or the peer has closed."""
        return bool(self._poll.poll(0))


class AsyncChannel:
    """A channel for both directions within an event loop.  Owns the socket."""

    def __init__(self, connection: socket.socket, kinds: Any) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._incoming = _Incoming(kinds)
        self._outgoing: deque[_Outgoing] = deque()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] | None = None  # the waiter in `receive`
        self._closed = False

    def send(self, message: Message, requests: Sequence[Sequence[Tensor]] = (), fd: int | None = None) -> None:
        """Queue a message, sent in order as the peer reads; tensors must not change until then.  Raises TooMuch.

        A peer that has gone is reported by `receive`.
        """
        if self._closed:
            return
        self._outgoing.append(_Outgoing(encode(message, requests), fd))
        if len(self._outgoing) == 1:
            self._push()

    async def receive(self) -> Frame | None:
        """Receive a message; None if the peer has closed, or `close` was called.  One call at a time.

        Raises Broken.
        """
        while not self._closed:
            with suppress(BlockingIOError):
                return self._incoming.pull(self._connection)
            await self._readable()
        return None

    def close(self) -> None:
        """Close the connection; what has not been sent is lost."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_writer(self._connection)
        self._loop.remove_reader(self._connection)
        self._connection.close()
        self._incoming.drop()
        self._clear()
        self._wake()

    async def _readable(self) -> None:
        self._ready = self._loop.create_future()
        self._loop.add_reader(self._connection, self._wake)
        try:
            await self._ready
        finally:
            if not self._closed:
                self._loop.remove_reader(self._connection)

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _push(self) -> None:
        try:
            while self._outgoing:
                self._outgoing[0].push(self._connection)
                self._outgoing.popleft().drop()
        except BlockingIOError:
            self._loop.add_writer(self._connection, self._push)
            return
        except OSError:  # the peer has gone; otherwise it sees the end of the stream, and goes
            self._clear()
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)
        self._loop.remove_writer(self._connection)

    def _clear(self) -> None:
        while self._outgoing:
            self._outgoing.popleft().drop()


class _Outgoing:
    """A frame that is being sent."""

    def __init__(self, buffers: Sequence[bytes | memoryview], fd: int | None) -> None:
        self._buffers = deque(memoryview(buffer).cast("B") for buffer in buffers)
        self._fd = None if fd is None else os.dup(fd)

    def push(self, connection: socket.socket) -> None:
        """Send as much as the socket takes.  Raises BlockingIOError if it must be called again, or OSError."""
        while self._buffers:
            rights = [] if self._fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._fd]))]
            sent = connection.sendmsg(list(islice(self._buffers, _MOST_BUFFERS)), rights, socket.MSG_NOSIGNAL)
            self.drop()
            self._advance(sent)

    def _advance(self, sent: int) -> None:
        while sent:
            first = self._buffers.popleft()
            if sent < len(first):
                self._buffers.appendleft(first[sent:])
            sent -= min(sent, len(first))

    def drop(self) -> None:
        """Close the descriptor, which is not needed any more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class _Incoming:
    """The frame that is being received: prefix, header and body, one after the other."""

    def __init__(self, kinds: Any) -> None:
        self._kinds = Kinds(kinds)
        self._fd: int | None = None
        self._next()

    def _next(self) -> None:
        self._parts = [bytearray(PREFIX.size)]
        self._left = memoryview(self._parts[0])  # the missing rest of the last part
        self._body_bytes = 0

    def pull(self, connection: socket.socket) -> Frame | None:
        """Return the next frame; None if the peer has closed.

        Raises Broken, and BlockingIOError if there is no more yet.
        """
        try:
            while len(self._parts) < 3 or self._left:
                if not self._left:
                    self._expect()
                elif not self._fill(connection):
                    if len(self._parts) == 1 and len(self._left) == PREFIX.size:
                        return None
                    raise Broken("the connection ended in the middle of a message")
            frame = decode(self._kinds, self._parts[1], self._parts[2], self._fd)
        except Broken:
            self.drop()
            raise
        self._fd = None
        self._next()
        return frame

    def _expect(self) -> None:
        """Prepare for the next part."""
        size = self._body_bytes
        if len(self._parts) == 1:
            size, self._body_bytes = sizes(self._parts[0])
        self._parts.append(bytearray(size))
        self._left = memoryview(self._parts[-1])

    def _fill(self, connection: socket.socket) -> bool:
        """Receive into the current part; return False at the end of the stream."""
        try:
            count = self._fill_prefix(connection) if len(self._parts) == 1 else connection.recv_into(self._left)
        except ConnectionResetError:
            return False
        self._left = self._left[count:]
        return count > 0

    def _fill_prefix(self, connection: socket.socket) -> int:
        """Receive the prefix.

        Only here does a descriptor arrive; the kernel closes those elsewhere, or surplus ones.
        """
        count, rights, flags, _ = connection.recvmsg_into([self._left], _ROOM_FOR_ONE, socket.MSG_CMSG_CLOEXEC)
        fds = [fd for _, _, data in rights for fd in array.array("i", data)]
        if fds and self._fd is None:
            self._fd = fds.pop()
        for fd in fds:
            os.close(fd)
        if fds or flags & socket.MSG_CTRUNC:
            raise Broken("a message with several descriptors")
        return count

    def drop(self) -> None:
        """Close the descriptor of a frame that will not be complete."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


SOCKET, TOKEN = "CARPOOL_SERVE_SOCKET", "CARPOOL_SERVE_TOKEN"


class NoFront(Exception):
    """There is no front to work for; the text gives the reason."""


def connect() -> tuple[socket.socket, str]:
    """Return a connection to the front, and the token to show.  Children of this process do not inherit them.

    Raises NoFront.
    """
    path, token = os.environ.pop(SOCKET, None), os.environ.pop(TOKEN, None)
    if path is None or token is None:
        raise NoFront(f"{SOCKET} and {TOKEN} are not set: workers are started by `carpool serve`")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        _, uid = peer(connection)
        if uid != os.geteuid():
            raise NoFront(f"{path} is a socket of user {uid}")
    except OSError as error:
        connection.close()
        raise NoFront(f"no server listens at {path}: {error.strerror or error}") from None
    except NoFront:
        connection.close()
        raise
    return connection, token
