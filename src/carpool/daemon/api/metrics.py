"""GET /metrics on the daemon's socket, and on TCP if the daemon is started with --metrics."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.context import CONTEXT
from carpool.daemon.metrics.page import DaemonMetrics
from carpool.daemon.system.errors import StartupError
from carpool.daemon.system.listener import Guests, SocketListener
from carpool.daemon.system.log_limit import caused_by
from carpool.protocol.http_connections import TimedConnection, make_room
from carpool.protocol.metrics import MetricsAddress

log = logging.getLogger(__name__)
#: On TCP the reader is unknown: readers together must not take the daemon's descriptors, or its time.
MOST_CONNECTIONS = 128
KEPT_S = 0.5
#: The uid in log lines about readers on TCP.
UNKNOWN = -1


async def metrics(call: ApiCall) -> object:
    """Return metrics in the text format of Prometheus, or as OpenMetrics; they name neither jobs nor users."""
    return _response(*await call.context.metrics.page(call.request.headers.get("Accept", "")))


@web.middleware
async def count(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Count the answer to every request on the socket by route."""
    response = await handler(request)
    resource = request.match_info.route.resource
    named = ("any", "unknown") if resource is None else (request.method, resource.canonical)
    request.app[CONTEXT].metrics.answered(*named, response.status)
    return response


def bound_socket(address: MetricsAddress) -> socket.socket:
    """Bind the TCP socket for metrics; no connection is accepted yet.  Raises StartupError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        hint = "choose another one, as in --metrics 127.0.0.1:9468"
        raise StartupError("metrics_address", f"--metrics {address}: {error.strerror}", hint) from None
    return listener


class MetricsServer:
    """Answers GET /metrics on TCP, and nothing else."""

    def __init__(self, metrics: DaemonMetrics) -> None:
        self._metrics = metrics
        self._kept: dict[str, tuple[float, bytes, str]] = {}
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        self._listener: SocketListener | None = None

    async def start(self, bound: socket.socket) -> MetricsServer:
        """Listen on the bound socket, which the server then owns."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None, "it has been set up"
        entrance = lambda: _Entrance(server)  # noqa: E731
        bound.listen()
        self._listener = SocketListener(bound, Guests(entrance).come)
        self._listener.start()
        return self

    async def close(self) -> None:
        """Stop listening, and end the server."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        """Return the metrics, which may be `KEPT_S` old for readers that ask often."""
        accept = "openmetrics" if "application/openmetrics-text" in request.headers.get("Accept", "") else ""
        made_s, body, media = self._kept.get(accept, (float("-inf"), b"", ""))
        if time.monotonic() - made_s > KEPT_S:
            body, media = await self._metrics.page(request.headers.get("Accept", "") if accept else "")
            self._kept[accept] = time.monotonic(), body, media
        return _response(body, media)


class _Entrance(asyncio.Protocol):
    """A new connection, still unread: the oldest connection without a complete request makes room for it."""

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not make_room(self._server.connections, MOST_CONNECTIONS):
            text = "there are %d connections to --metrics already: another one is refused"
            log.warning(text, MOST_CONNECTIONS, extra=caused_by(UNKNOWN))
            transport.abort()
            return
        handler = TimedConnection(self._server, access_log=None)
        transport.set_protocol(handler)
        handler.connection_made(transport)


def _response(body: bytes, media: str) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": media})
