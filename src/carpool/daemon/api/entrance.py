"""The entrance to the API: connections and requests in work are limited by person.

The last connections are kept for persons who have none, and some more for root.  At most two requests of a person are
in work; the person's other requests wait in a queue.  A request that waits for its client or for a job is not in work
meanwhile (`aside`), so that idle connections delay no other request.  A request in the queue ends when its client
disconnects: a queue is no longer than the number of a person's connections.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from aiohttp import web

from carpool.daemon.system.errors import NO_MEMORY
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.peer import peer_credentials, person_of
from carpool.protocol.api import ErrorBody, ErrorInfo
from carpool.protocol.display import user_name
from carpool.protocol.http_connections import HEAD_S, TimedConnection

log = logging.getLogger(__name__)
IN_WORK = 2
#: How long work in slices waits for requests of root between two slices, at most.
GIVES_WAY_S = 0.005
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
        """Count one more connection of a person."""
        self._of[person] += 1
        self._count += 1

    def go(self, person: int) -> None:
        """Count one connection of a person less."""
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
        """Count the connection for its person."""
        self._connections.come(self._person)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the connection no more, and end what only waits for it."""
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


@dataclass(slots=True)
class _Work:
    """The requests of one person."""

    in_work: int = 0
    changes: deque[asyncio.Future[None]] = field(default_factory=deque)  # requests that change something come first
    reads: deque[asyncio.Future[None]] = field(default_factory=deque)
    slices: asyncio.Lock = field(default_factory=asyncio.Lock)

    def next(self) -> asyncio.Future[None] | None:
        """Return the request that has waited longest, changes first, of those whose clients are still connected."""
        for waiting in (self.changes, self.reads):
            while waiting:
                first = waiting.popleft()
                if not first.done():
                    return first
        return None


class RequestQueue:
    """The requests of all persons."""

    def __init__(self) -> None:
        self._of: dict[int, _Work] = {}
        self._without_root = asyncio.Event()
        self._without_root.set()

    async def enter(self, person: int, *, reads: bool) -> None:
        """Wait until fewer than `IN_WORK` requests of this person are in work, and begin.

        ``reads``: the request changes nothing, and lets the person's changes pass.
        """
        work = self._of.setdefault(person, _Work())
        if work.in_work < IN_WORK:
            self._begin(person, work)
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (work.reads if reads else work.changes).append(waiting)
        try:
            await waiting  # the request that left has passed its place on
        except asyncio.CancelledError:
            if not waiting.cancelled():
                self.leave(person)
            raise

    def leave(self, person: int) -> None:
        """End a request's work, and pass its place on to the person's next request."""
        work = self._of[person]
        following = work.next()
        if following is not None:
            following.set_result(None)
            return
        work.in_work -= 1
        if work.in_work:
            return
        del self._of[person]
        if person == ROOT:
            self._without_root.set()

    def slices(self, person: int) -> asyncio.Lock:
        """The lock for long work, held by one request of a person: each person has the same share, not each request."""
        return self._of[person].slices

    async def give_way(self, person: int) -> None:
        """Let other requests pass between two slices: all requests once, those of root for `GIVES_WAY_S` at most."""
        await asyncio.sleep(0)
        if person != ROOT and not self._without_root.is_set():
            try:
                await asyncio.wait_for(self._without_root.wait(), GIVES_WAY_S)
            except TimeoutError:
                return

    def _begin(self, person: int, work: _Work) -> None:
        work.in_work += 1
        if person == ROOT:
            self._without_root.clear()


class RequestPlace:
    """The place of one request among the requests in work."""

    def __init__(self, queue: RequestQueue, uid: int) -> None:
        self._queue = queue
        self._person = person_of(uid)
        self._held = False

    @asynccontextmanager
    async def held(self, request: web.Request) -> AsyncIterator[None]:
        """Hold the place while the request is handled.  Raises ConnectionResetError if its client leaves before."""
        await self._take(request)
        try:
            yield
        finally:
            self._give_back()

    @asynccontextmanager
    async def aside(self, request: web.Request) -> AsyncIterator[None]:
        """Give up the place while the request only waits.  Raises ConnectionResetError as soon as its client leaves."""
        self._give_back()
        async with _connected(request):
            yield
        await self._take(request)

    @asynccontextmanager
    async def slices(self) -> AsyncIterator[None]:
        """Hold the lock for long work, which is done in slices with `give_way` between them."""
        async with self._queue.slices(self._person):
            yield

    async def give_way(self) -> None:
        """Let other requests pass between two slices."""
        await self._queue.give_way(self._person)

    async def _take(self, request: web.Request) -> None:
        async with _connected(request):
            await self._queue.enter(self._person, reads=request.method == "GET")
            self._held = True

    def _give_back(self) -> None:
        if self._held:
            self._held = False
            self._queue.leave(self._person)


QUEUE: web.AppKey[RequestQueue] = web.AppKey("queue", RequestQueue)
PLACE: web.RequestKey[RequestPlace] = web.RequestKey("place", RequestPlace)


@asynccontextmanager
async def _connected(request: web.Request) -> AsyncIterator[None]:
    """Raise ConnectionResetError in the block when the client leaves."""
    connection = request.protocol
    if not isinstance(connection, ApiConnection):
        yield
        return
    try:
        async with asyncio.timeout(None) as limit, connection.heard_when_lost(limit):
            yield
    except TimeoutError:
        if limit.expired():
            raise ConnectionResetError("the client has left") from None
        raise
