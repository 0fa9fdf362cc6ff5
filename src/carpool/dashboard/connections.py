"""Connections of browsers, and of whoever else has found the port: so many at once, and none idle for long.

One of more than so many takes the place of the oldest that has no complete request, or no page with a token.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from carpool.dashboard.answers import error_answer
from carpool.dashboard.guard import HEADERS
from carpool.protocol.http_connections import TimedConnection, make_room

MOST = 256
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n%s\r\n"
    % "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items()).encode()
)
#: For aiohttp, which would tell of malformed HTTP, with its bytes: anybody could fill the terminal.
_no_log = logging.getLogger(f"{__name__}.http")
_no_log.disabled = True


class BrowserConnection(TimedConnection):
    """Of which nothing is read if there are too many already.  Entitled is whose page has shown a token."""

    __slots__ = ("_server", "entitled")

    def __init__(self, server: web.Server) -> None:
        super().__init__(server, logger=_no_log, access_log=_no_log)
        self._server = server
        self.entitled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if make_room(self._server.connections, MOST):
            super().connection_made(transport)
            return
        assert isinstance(transport, asyncio.Transport)
        self.close()
        transport.write(REFUSAL)
        transport.close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """To what is no HTTP, before there is a request that a handler could get."""
        super().handle_error(request, status, exc, message)
        answer = error_answer(status, "bad_http", "the request is not understood")
        answer.headers.update(HEADERS)
        answer.headers["Cache-Control"] = "no-store"
        answer.force_close()
        return answer


def entitle(request: web.Request) -> None:
    """The page at the other end has shown a token that is valid."""
    if isinstance(request.protocol, BrowserConnection):
        request.protocol.entitled = True


@asynccontextmanager
async def listening(runner: web.AppRunner, listener: socket.socket) -> AsyncIterator[None]:
    """Connections are taken in meanwhile.  ``runner`` has been set up."""
    server = runner.server
    assert server is not None, "it has been set up"
    accepting = await asyncio.get_running_loop().create_server(lambda: BrowserConnection(server), sock=listener)
    try:
        yield
    finally:
        accepting.close()
