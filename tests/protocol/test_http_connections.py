"""Whoever says half of a request, or takes no answer, keeps nobody else out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from carpool.protocol import http_connections
from carpool.protocol.http_connections import TimedConnection, make_room

MOST = 4
WHOLE = b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = WHOLE.replace(b"quick", b"slow")
HALVES = {
    "nothing": b"",
    "half a head": b"GET /quick HTTP/1.1\r\nHos",
    "half a body": b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
    "half a body that nobody reads": b"POST /quick HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
    "an answer, and half a head": WHOLE + b"GET /quick HT",
    "an answer that is not taken": WHOLE.replace(b"quick", b"large"),
}
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Rig:
    """A server of `MOST` connections, and what connects to it."""

    def __init__(self) -> None:
        self.go_on, self.begun = asyncio.Event(), asyncio.Semaphore(0)
        self._open: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Rig:
        app = web.Application()
        app.router.add_get("/slow", self._slow)
        app.router.add_route("*", "/quick", self._quick)
        app.router.add_get("/large", self._large)
        app.router.add_post("/read", self._read)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        assert self._runner.server is not None
        self.server = self._runner.server
        self._listener = await asyncio.get_running_loop().create_server(self._come, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for writer in self._open:
            writer.close()
        await self._runner.cleanup()

    def _come(self) -> asyncio.Protocol:
        return _Door(self.server)

    async def connect(self, said: bytes = b"") -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._open.append(writer)
        writer.write(said)
        return reader, writer

    async def _quick(self, request: web.Request) -> web.Response:
        self.begun.release()
        return web.Response(text="quick")

    async def _slow(self, request: web.Request) -> web.Response:
        self.begun.release()
        await self.go_on.wait()
        return web.Response(text="slow")

    async def _large(self, request: web.Request) -> web.Response:
        self.begun.release()
        return web.Response(body=bytes(64 << 20))

    async def _read(self, request: web.Request) -> web.Response:
        self.begun.release()
        return web.Response(body=await request.read())


class _Door(asyncio.Protocol):
    def __init__(self, server: web.Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not make_room(self._server.connections, MOST):
            transport.abort()
            return
        handler = TimedConnection(self._server, access_log=None)
        transport.set_protocol(handler)
        handler.connection_made(transport)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig() as made:
        yield made


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)


async def ended(connection: Connection) -> bool:
    """Waits for the end; what is sent before it does not count."""
    async with asyncio.timeout(30):
        try:
            while await connection[0].read(1 << 20):
                pass
        except ConnectionError:
            pass
    return True


@pytest.mark.parametrize("said", HALVES.values(), ids=HALVES)
async def test_a_newcomer_takes_the_place_of_the_oldest_half_request(rig: Rig, said: bytes) -> None:
    old = [await rig.connect(said) for _ in range(MOST)]
    await until(lambda: len(rig.server.connections) == MOST)
    if b"\r\n\r\n" in said:
        for _ in range(MOST):
            await rig.begun.acquire()
        await until(lambda: not any(each.needed for each in rig.server.connections))  # type: ignore[attr-defined]
    reader, _ = await rig.connect(WHOLE)
    async with asyncio.timeout(30):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    assert await ended(old[0])
    assert len([each for each in rig.server.connections if each.transport is not None]) == MOST


async def test_whoever_waits_for_an_answer_stays(rig: Rig) -> None:
    waiting = [await rig.connect(SLOW) for _ in range(MOST)]
    for _ in range(MOST):
        await rig.begun.acquire()
    assert await ended(await rig.connect(WHOLE)), "there is no room"
    rig.go_on.set()
    for reader, _ in waiting:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("said", [b"", b"GET /quick HTTP/1.1\r\nX: "], ids=["nothing", "half a head"])
async def test_a_head_that_is_late_ends_the_connection(rig: Rig, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "HEAD_S", 0.02)
    assert await ended(await rig.connect(said))


async def test_a_head_byte_by_byte_has_no_more_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "HEAD_S", 0.05)
    connection = await rig.connect(WHOLE + b"GET /quick HTTP/1.1\r\nX: ")
    await rig.begun.acquire()
    over = asyncio.create_task(ended(connection))
    while not over.done():
        connection[1].write(b"a")
        await asyncio.sleep(0.001)


async def test_an_answer_may_take_longer_than_a_head(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "HEAD_S", 0.02)
    reader, _ = await rig.connect(SLOW)
    await rig.begun.acquire()
    await ended(await rig.connect(b"GET"))  # it has come later, and its time is over
    rig.go_on.set()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
