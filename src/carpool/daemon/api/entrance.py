"""The entrance to the API: limits the connections of each person, so that descriptors are left for the others.

The last connections are kept for persons who have none, and some more for root.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from carpool.daemon.system.errors import NO_MEMORY
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.peer import peer_credentials
from carpool.daemon.system.persons import person_of
from carpool.protocol.api import ErrorBody, ErrorInfo
from carpool.protocol.display import user_name
from carpool.protocol.http_connections import HEAD_S, TimedConnection

log = logging.getLogger(__name__)
#: One person's connections take at most 1/`SHARE` of the daemon's descriptors, all connections 1/`SHARE_OF_ALL`,
SHARE, SHARE_OF_ALL = 8, 2
#: of which 1/`SHARE_OF_NEWCOMERS` is kept for persons who have no other connection.
SHARE_OF_NEWCOMERS = 4
#: Connections that root may have however many others there are.
FOR_ROOT = 16
ROOT = 0
_NO_MEMORY = ErrorInfo(
    "system_error", f"the system refuses what the daemon needs: {NO_MEMORY}", "try again in a moment"
)


class Connections:
    """Counts each person's connections.  ``most``: the limit for one person, as the file ``limits`` says."""

    def __init__(self, most: int, limits: Path) -> None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = min(most, descriptors // SHARE)
        self._all = descriptors // SHARE_OF_ALL
        self._limits = limits
        self._of = Counter[int]()
        self._count = 0

    def refusal(self, uid: int) -> ErrorInfo | None:
        """Return why the user may not have another connection; None: one more is allowed."""
        count = self._of[person_of(uid)]
        if count >= self._most:
            text = f"user {user_name(uid)} has {self._most} connections to the daemon already"
            hint = f"end some of its commands; an administrator can change the limit in {self._limits}"
            return ErrorInfo("too_many_connections", text, hint)
        if self._count < self._room(uid, count):
            return None
        text = f"the daemon has {self._count} connections, and the rest are for users who have none"
        return ErrorInfo("too_many_connections", text, "try again in a moment")

    def _room(self, uid: int, count: int) -> int:
        if uid == ROOT:
            return self._all + FOR_ROOT
        return self._all - self._all // SHARE_OF_NEWCOMERS if count else self._all

    def come(self, person: int) -> None:
        self._of[person] += 1
        self._count += 1

    def go(self, person: int) -> None:
        self._count -= 1
        self._of[person] -= 1
        if not self._of[person]:
            del self._of[person]


class ApiConnection(TimedConnection):
    """A connection to the API, which counts for its person as long as it is open."""

    __slots__ = ("_connections", "_person", "_refused", "_waiting")

    def __init__(self, server: web.Server, connections: Connections, person: int) -> None:
        super().__init__(server, access_log=None)
        self._connections, self._person = connections, person
        self._refused = False  # everything that still arrives is dropped
        self._waiting: asyncio.Timeout | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connections.come(self._person)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.go(self._person)
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.reschedule(0)

    def data_received(self, data: bytes) -> None:
        """Handle data; refuse a request that does not fit into the daemon's memory, and drop the rest of it."""
        if self._refused:
            return
        try:
            super().data_received(data)
        except MemoryError:
            log.error("a request of uid %d is refused: %s", self._person, NO_MEMORY, extra=caused_by(self._person))
            self._refused = True
            if isinstance(self.transport, asyncio.Transport):
                _answer(self.transport, "503 Service Unavailable", _NO_MEMORY)
                self.transport.write_eof()
                self._loop.call_later(HEAD_S, self.abort)

    @asynccontextmanager
    async def heard_when_lost(self, waiting: asyncio.Timeout) -> AsyncIterator[None]:
        """Let the timeout of an operation that serves only this connection's request expire with the connection."""
        if self.transport is None:
            waiting.reschedule(0)
        self._waiting = waiting
        try:
            yield
        finally:
            self._waiting = None


class Entrance(asyncio.Protocol):
    """A new connection, still unread: the HTTP server gets it, unless there are too many."""

    def __init__(self, server: web.Server, connections: Connections) -> None:
        self._server = server
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection to the HTTP server, or refuse it without reading from it."""
        assert isinstance(transport, asyncio.Transport)
        uid = _uid(transport)
        refused = self._connections.refusal(uid)
        if refused is not None:
            _refuse(transport, uid, refused)
            return
        handler = ApiConnection(self._server, self._connections, person_of(uid))
        transport.set_protocol(handler)
        try:
            handler.connection_made(transport)
        except OSError as error:  # an option of the socket that cannot be set
            log.warning("a connection of uid %d is dropped: %s", uid, error, extra=caused_by(uid))
            transport.abort()


def _refuse(transport: asyncio.Transport, uid: int, why: ErrorInfo) -> None:
    log.warning("%s: another one of uid %d is refused", why.message, uid, extra=caused_by(uid))
    _answer(transport, "429 Too Many Requests", why)
    transport.close()


def _answer(transport: asyncio.Transport, status: str, why: ErrorInfo) -> None:
    """Write the last answer on this connection."""
    body = msgspec.json.encode(ErrorBody(why))
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _uid(transport: asyncio.BaseTransport) -> int:
    """Return the uid of the process at the other end; -1 if the connection has just been closed."""
    connection = transport.get_extra_info("socket")
    try:
        return peer_credentials(connection)[1]
    except OSError:
        return -1
