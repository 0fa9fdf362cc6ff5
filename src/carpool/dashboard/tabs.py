"""The WebSockets of the open pages: each gets the same messages, or a new state if a page is too slow for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from carpool.dashboard.connections import entitle
from carpool.dashboard.guard import Links

PATIENCE_S = 5.0
NO_TOKEN = 4401
TOO_MANY = 4429
MOST_TABS = 32
WAITING = 20  # most messages that wait for one page
LARGEST = 4096  # most bytes of a message of a page


class _Hello(msgspec.Struct):
    token: str


class Tab:
    """One open page."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self.needs_state = True

    def tell(self, text: str) -> None:
        """Queue a message without waiting; a page that is too slow gets a state instead."""
        if self.needs_state:
            return
        try:
            self.waiting.put_nowait(text)
        except asyncio.QueueFull:
            self.needs_state = True

    def begin(self, state: str) -> None:
        """Replace all queued messages by a state, to which later changes apply."""
        while not self.waiting.empty():
            self.waiting.get_nowait()
        self.waiting.put_nowait(state)
        self.needs_state = False

    @property
    def idle(self) -> bool:
        """Whether the page has taken all messages."""
        return self.waiting.empty()


class Tabs:
    """``changed`` is called when a page is opened or closed."""

    def __init__(self, links: Links, changed: Callable[[], None]) -> None:
        self._links, self._changed = links, changed
        self._tabs: set[Tab] = set()

    def __len__(self) -> int:
        return len(self._tabs)

    def tell(self, text: str) -> None:
        """Send a message to all pages that are up to date."""
        for tab in self._tabs:
            tab.tell(text)

    def tell_gone(self, text: str) -> None:
        """Tell all pages that their content is not current any more; each needs a state then."""
        for tab in self._tabs:
            tab.begin(text)
            tab.needs_state = True

    def need_state(self) -> None:
        """Let every page need a new state: messages so far have gaps."""
        for tab in self._tabs:
            tab.needs_state = True

    def behind(self) -> bool:
        """Whether a page needs a state, and has taken all messages that were sent."""
        return any(tab.needs_state and tab.idle for tab in self._tabs)

    def begin(self, state: str) -> None:
        """Send the same state to all pages: later changes apply to it."""
        for tab in self._tabs:
            tab.begin(state)

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Handle the connection of a page, from its token to its end."""
        socket = web.WebSocketResponse(heartbeat=30.0, max_msg_size=LARGEST, compress=False)
        await socket.prepare(request)
        if not await self._entitled(socket):
            await socket.close(code=NO_TOKEN, message=b"no valid token")
        elif len(self._tabs) >= MOST_TABS:
            await socket.close(code=TOO_MANY, message=b"too many pages are open")
        else:
            entitle(request)
            await self._serve(socket)
        return socket

    async def _entitled(self, socket: web.WebSocketResponse) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):  # in all: the socket's own limit begins anew with each ping
                first = await socket.receive()
            hello = msgspec.json.decode(first.data, type=_Hello) if first.type is WSMsgType.TEXT else _Hello("")
        except (TimeoutError, msgspec.DecodeError):
            return False
        return self._links.knows(hello.token)

    async def _serve(self, socket: web.WebSocketResponse) -> None:
        tab = Tab()
        self._tabs.add(tab)
        self._changed()
        try:
            with suppress(ConnectionError):
                await run_until_first(_read(socket), _write(socket, tab))
        finally:
            self._tabs.discard(tab)
            self._changed()


async def _read(socket: web.WebSocketResponse) -> None:
    """Read until the page has gone; its messages are ignored."""
    async for _ in socket:
        pass


async def _write(socket: web.WebSocketResponse, tab: Tab) -> None:
    while not socket.closed:
        await socket.send_str(await tab.waiting.get())


async def run_until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one has ended, and cancel the others.  Raises what the ended one raises."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
