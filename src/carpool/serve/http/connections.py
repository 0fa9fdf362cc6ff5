"""The endpoint's socket and its connections: refused beyond a number, closed when a client keeps the server waiting."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import cast

from aiohttp import web

from carpool.serve.oip.errors import StartError

#: Silences aiohttp's log of malformed HTTP with its bytes: any client could fill the log, and a token may be in them.
_no_log = logging.getLogger(f"{__name__}.http")
_no_log.disabled = True

BACKLOG = 1024
WRONG_EXPECT = "the header Expect may only be `100-continue`"
#: Bytes that aiohttp reads ahead per connection.
READ_AHEAD = 64 << 10
TOO_MANY = b'{"error": "too many connections; close some, or try again"}'
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(TOO_MANY), TOO_MANY)
)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """``most``: connections at once; ``patience_s``: seconds for a head, and for everything else a client has to do."""

    most: int
    patience_s: float


class ClientConnection(web.RequestHandler):
    """A connection whose unread answers are limited in time.

    aiohttp limits heads, idle times and rests of bodies (``keepalive_timeout``, which begins with the connection and
    after each answer, and ``lingering_time``).  Answers that the client does not take are limited here.
    """

    __slots__ = ("_limits", "_server", "_timer", "_unsent", "_wire")

    def __init__(self, server: web.Server, limits: ConnectionLimits) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.patience_s,
            lingering_time=limits.patience_s,
            read_bufsize=READ_AHEAD,
            auto_decompress=False,  # in `bodies`: aiohttp tells no handler of a stream that ends too early
            logger=_no_log,
            access_log=_no_log,
        )
        self._server = server
        self._limits = limits
        self._wire: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Watch a new connection, or refuse one beyond the limit."""
        self._wire = cast(asyncio.Transport, transport)
        if len(self._server.connections) >= self._limits.most:
            self.close()
            self._wire.write(REFUSAL)
            self._wire.close()
            return
        self._wire.set_write_buffer_limits(high=0)  # `pause_writing` is called as soon as the client takes too little
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop watching."""
        self._stop_timer()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to a request that cannot be read, as JSON like every other error."""
        if isinstance(exc, UnicodeEncodeError):  # aiohttp quotes the header Expect of a request for an unknown path
            status, message = 417, WRONG_EXPECT
        super().handle_error(request, status, exc, message)
        text = f"the request cannot be read: {message}" if message else "the request cannot be read"
        answer = web.json_response({"error": text}, status=status)
        answer.force_close()
        return answer

    def pause_writing(self) -> None:
        """Begin to watch whether the client takes its answer."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Stop watching whether the client takes its answer."""
        self._stop_timer()
        super().resume_writing()

    def _watch(self) -> None:
        assert self._wire is not None
        self._unsent = self._wire.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(self._limits.patience_s, self._look)

    def _look(self) -> None:
        assert self._wire is not None
        if self._wire.get_write_buffer_size() < self._unsent:
            self._watch()
        else:
            self._wire.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Listener:
    """The listening socket: `open` it, and `close` it before the runner is cleaned up.  ``runner`` must be set up."""

    def __init__(self, runner: web.AppRunner, limits: ConnectionLimits) -> None:
        self._runner = runner
        self._limits = limits
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> str:
        """Listen, and return the URL.  Raises StartError."""
        try:
            self._server = await asyncio.get_running_loop().create_server(self._connection, host, port, backlog=BACKLOG)
        except OSError as error:
            raise StartError(f"cannot listen on {host}, port {port}: {error.strerror}; choose another --port") from None
        at, port = self._server.sockets[0].getsockname()[:2]
        return f"http://[{at}]:{port}" if ":" in at else f"http://{at}:{port}"

    def close(self) -> None:
        """Stop listening; existing connections stay."""
        if self._server is not None:
            self._server.close()

    def _connection(self) -> asyncio.Protocol:
        assert self._runner.server is not None
        return ClientConnection(self._runner.server, self._limits)
