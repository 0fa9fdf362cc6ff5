"""The requests in work: at most two of a person; the person's other requests wait in a queue.

A request that waits for its client or for a job is not in work meanwhile (`aside`), so that idle connections delay no
other request.  A request in the queue ends when its client disconnects: a queue is no longer than the number of a
person's connections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from carpool.daemon.api.entrance import ROOT, ApiConnection
from carpool.daemon.system.persons import person_of

IN_WORK = 2
#: How long work in slices waits for requests of root between two slices, at most.
GIVES_WAY_S = 0.005


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
