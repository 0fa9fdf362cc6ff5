"""The way in to the API: one user has so many connections at once, and leaves descriptors to the others."""

from __future__ import annotations

import asyncio
import logging
import resource
from pathlib import Path

import msgspec
from aiohttp import web

from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.peer import peer_credentials
from carpool.protocol.api import ErrorBody, ErrorInfo

log = logging.getLogger(__name__)
#: Connections of one user take at most one in this many of the daemon's descriptors.
SHARE = 8


class Entrance(asyncio.Protocol):
    """A connection of which nothing has been read: the HTTP server gets it, unless its user has too many."""

    def __init__(self, server: web.Server, most: int, limits: Path) -> None:
        """``limits``: the file that sets ``most``, for people."""
        self._server = server
        self._most = min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE)
        self._limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is read of a connection that is refused."""
        assert isinstance(transport, asyncio.Transport)
        uid = _uid(transport)
        present = [handler.transport for handler in self._server.connections if handler.transport is not None]
        if sum(_uid(other) == uid for other in present) >= self._most:
            self._refuse(transport, uid)
            return
        handler = self._server()
        transport.set_protocol(handler)
        try:
            handler.connection_made(transport)
        except OSError as error:  # an option of the socket that cannot be set
            log.warning("a connection of uid %d is dropped: %s", uid, error, extra=caused_by(uid))
            transport.abort()

    def _refuse(self, transport: asyncio.Transport, uid: int) -> None:
        text = f"uid {uid} has {self._most} connections to the daemon already"
        hint = f"end some of its commands; an administrator can change the limit in {self._limits}"
        log.warning("%s: another one is refused", text, extra=caused_by(uid))
        body = msgspec.json.encode(ErrorBody(ErrorInfo("too_many_connections", text, hint)))
        head = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
        transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        transport.close()


def _uid(transport: asyncio.BaseTransport) -> int:
    """Of the process at the other end; -1 where the connection has just been closed."""
    connection = transport.get_extra_info("socket")
    try:
        return peer_credentials(connection)[1]
    except OSError:
        return -1
