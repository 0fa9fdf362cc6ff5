"""Connections of browsers, and of any program that finds the port: a limited number, and none idle for long.

A connection beyond the limit replaces the oldest one that has no complete request, or no page with a token.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from carpool.dashboard.guard import HEADERS, error_answer
from carpool.protocol.http_connections import TimedConnection, make_room

MOST = 256
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n%s\r\n"
    % "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items()).encode()
)
#: For aiohttp, which would log malformed HTTP with its bytes: any program could fill the terminal.
_no_log = logging.getLogger(f"{__name__}.http")
_no_log.disabled = True


class BrowserConnection(TimedConnection):
    """A connection; nothing is read of one beyond the limit.  ``entitled``: its page has shown a valid token."""

    __slots__ = ("_server", "entitled")

    def __init__(self, server: web.Server) -> None:
        super().__init__(server, logger=_no_log, access_log=_no_log)
        self._server = server
        self.entitled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room for the connection, or refuse it."""
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
        """Answer bytes that are not HTTP, before there is a request for a handler."""
        super().handle_error(request, status, exc, message)
        answer = error_answer(status, "bad_http", "the request is not understood")
        answer.headers.update(HEADERS)
        answer.headers["Cache-Control"] = "no-store"
        answer.force_close()
        return answer


def entitle(request: web.Request) -> None:
    """Mark the request's connection: its page has shown a valid token."""
    if isinstance(request.protocol, BrowserConnection):
        request.protocol.entitled = True


@asynccontextmanager
async def listening(runner: web.AppRunner, listener: socket.socket) -> AsyncIterator[None]:
    """Accept connections while the context lasts.  ``runner`` has been set up."""
    server = runner.server
    assert server is not None, "it has been set up"
    accepting = await asyncio.get_running_loop().create_server(lambda: BrowserConnection(server), sock=listener)
    try:
        yield
    finally:
        accepting.close()
