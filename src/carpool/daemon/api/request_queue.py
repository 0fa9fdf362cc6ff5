"""Which requests are in work: two of a person at most, the others wait in a queue of that person's.

A request that waits for its client or for a job is not in work meanwhile (`aside`): connections on which nothing
happens hold nobody up.  What waits here ends when its client leaves: a queue is no longer than a person has
connections.
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
#: Work in slices lets requests of root pass so long at each slice.
GIVES_WAY_S = 0.005


@dataclass(slots=True)
class _Work:
    """One person's."""

    in_work: int = 0
    changes: deque[asyncio.Future[None]] = field(default_factory=deque)  # requests that change something come first
    reads: deque[asyncio.Future[None]] = field(default_factory=deque)
    slices: asyncio.Lock = field(default_factory=asyncio.Lock)

    def next(self) -> asyncio.Future[None] | None:
        """The request that has waited longest, of those whose clients are still there."""
        for waiting in (self.changes, self.reads):
            while waiting:
                first = waiting.popleft()
                if not first.done():
                    return first
        return None


class RequestQueue:
    """Of all persons."""

    def __init__(self) -> None:
        self._of: dict[int, _Work] = {}
        self._without_root = asyncio.Event()
        self._without_root.set()

    async def enter(self, person: int, *, reads: bool) -> None:
        """As soon as fewer than `IN_WORK` requests of this person are in work.

        ``reads``: the request changes nothing, and lets the person's changes pass.
        """
        work = self._of.setdefault(person, _Work())
        if work.in_work < IN_WORK:
            self._begin(person, work)
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (work.reads if reads else work.changes).append(waiting)
        try:
            await waiting  # whoever leaves has passed the place on
        except asyncio.CancelledError:
            if not waiting.cancelled():
                self.leave(person)
            raise

    def leave(self, person: int) -> None:
        """The place goes to the next request."""
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
        """Held by the one request in work that does a lot: so each person has the same share, and not each request."""
        return self._of[person].slices

    async def give_way(self, person: int) -> None:
        """Between two slices: to everybody once, to root for a moment."""
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
    """What one request has while it is in work."""

    def __init__(self, queue: RequestQueue, uid: int) -> None:
        self._queue = queue
        self._person = person_of(uid)
        self._held = False

    @asynccontextmanager
    async def held(self, request: web.Request) -> AsyncIterator[None]:
        """While the request is handled.  Raises ConnectionResetError if its client leaves before."""
        await self._take(request)
        try:
            yield
        finally:
            self._give_back()

    @asynccontextmanager
    async def aside(self, request: web.Request) -> AsyncIterator[None]:
        """While nothing is done for the request.  Raises ConnectionResetError as soon as its client leaves."""
        self._give_back()
        async with _connected(request):
            yield
        await self._take(request)

    @asynccontextmanager
    async def slices(self) -> AsyncIterator[None]:
        """While a lot is done for the request, in slices; between two of them, `give_way`."""
        async with self._queue.slices(self._person):
            yield

    async def give_way(self) -> None:
        """Between two slices."""
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
    """Ends with ConnectionResetError when the client leaves."""
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
