"""The listening socket of the endpoint, with or without TLS."""

from __future__ import annotations

import asyncio
import ssl

from aiohttp import web

from carpool.serve.http.client_connection import ClientConnection, ConnectionLimits
from carpool.serve.oip.errors import StartError

BACKLOG = 1024


class Listener:
    """The listening socket: `open` it, and `close` it before the runner is cleaned up.  ``runner`` must be set up."""

    def __init__(self, runner: web.AppRunner, limits: ConnectionLimits, tls: ssl.SSLContext | None) -> None:
        self._runner = runner
        self._limits = limits
        self._tls = tls
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> str:
        """Listen, and return the URL.  Raises StartError."""
        waits = self._limits.patience_s if self._tls else None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._connection, host, port, ssl=self._tls, backlog=BACKLOG,
                ssl_handshake_timeout=waits, ssl_shutdown_timeout=waits,
            )  # fmt: skip
        except OSError as error:
            raise StartError(f"cannot listen on {host}, port {port}: {error.strerror}; choose another --port") from None
        return self._url(*self._server.sockets[0].getsockname()[:2])

    def close(self) -> None:
        """Stop listening; existing connections stay."""
        if self._server is not None:
            self._server.close()

    def _connection(self) -> asyncio.Protocol:
        assert self._runner.server is not None
        return ClientConnection(self._runner.server, self._limits)

    def _url(self, host: str, port: int) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
