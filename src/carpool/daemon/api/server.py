"""The HTTP server on the Unix socket."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
from aiohttp import web

from carpool.daemon.api.context import CONTEXT, Context
from carpool.daemon.api.entrance import QUEUE, Connections, Entrance, RequestQueue
from carpool.daemon.api.jobs import ROWS, KeptRows
from carpool.daemon.api.metrics import MetricsServer, count
from carpool.daemon.api.middleware import add_protocol_header, guard
from carpool.daemon.api.routes import add_routes, openapi
from carpool.daemon.system.errors import StartupError
from carpool.daemon.system.listener import Guests, SocketListener
from carpool.protocol.api import ErrorBody, ErrorInfo
from carpool.protocol.display import user_name
from carpool.protocol.paths import Home

LARGEST_BODY = 16 << 20  # environments may be large
BACKLOG = 1024  # connections that have not been accepted yet
LONGEST_SOCKET_PATH = 107  # sockaddr_un


def make_app(context: Context) -> web.Application:
    """Make the application, with its middleware and routes; it does not listen yet."""
    app = web.Application(middlewares=[count, guard], client_max_size=LARGEST_BODY)
    app[CONTEXT], app[QUEUE] = context, RequestQueue()
    app[ROWS] = KeptRows(context.machine.explain, lambda: context.feed.last_seq, lambda: context.jobs.live)
    add_routes(app)
    app.router.add_get("/openapi.json", openapi)
    app.on_response_prepare.append(add_protocol_header)
    return app


class ApiServer:
    """The API while it is served."""

    def __init__(self, runner: web.AppRunner, listener: SocketListener, metrics: MetricsServer | None) -> None:
        self._runner = runner
        self._listener = listener
        self._metrics = metrics

    async def close(self) -> None:
        """Refuse new connections, give the open ones a moment, and end the server."""
        self._listener.close()
        await self._runner.cleanup()
        if self._metrics is not None:
            await self._metrics.close()


async def serve(
    context: Context, mode: int, listening: socket.socket | None, metrics: socket.socket | None
) -> ApiServer:
    """Listen; the socket appears with its final permissions.

    ``listening``: a socket that exists already; ``metrics``: a TCP socket on which metrics are served, too.
    """
    further = None if metrics is None else await MetricsServer(context.metrics).start(metrics)
    runner = web.AppRunner(make_app(context), access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    server, connections = runner.server, Connections(context.limits.connections, context.home.limits)
    assert server is not None, "it has been set up"

    def entrance() -> Entrance:
        return Entrance(server, connections)

    bound = listening or _bound(context.home.socket, mode)
    bound.listen(BACKLOG)
    listener = SocketListener(bound, Guests(entrance).come, _refuse)
    listener.start()
    return ApiServer(runner, listener, further)


def _bound(path: Path, mode: int) -> socket.socket:
    """Bind a new socket, which appears with its final permissions."""
    path.unlink(missing_ok=True)
    found = socket.socket(socket.AF_UNIX)
    old = os.umask(0o777 & ~mode)
    try:
        found.bind(str(path))
    finally:
        os.umask(old)
    return found


def _refuse(connection: socket.socket) -> None:
    """Refuse, unread, a connection for which there is no descriptor left."""
    text = "the daemon has no file descriptor left"
    body = msgspec.json.encode(ErrorBody(ErrorInfo("no_descriptors", text, "try again in a moment")))
    head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with suppress(OSError):
        connection.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def check_socket(home: Home) -> None:
    """Check the paths of the sockets.  Raises StartupError if one cannot be, or is not, a socket of this user."""
    path = home.session_socket
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise StartupError(
            "path_too_long",
            f"{path} is longer than a socket's path may be ({LONGEST_SOCKET_PATH} bytes)",
            "choose a shorter --home (or CARPOOL_HOME)",
        )
    for path in (home.socket, home.session_socket):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISSOCK(status.st_mode):
            raise StartupError("not_a_socket", f"{path} is in the way: it is not a socket", "move it away")
        if status.st_uid != os.geteuid():
            raise StartupError(
                "socket_of_another_user",
                f"{path} belongs to user {user_name(status.st_uid)}, you are {user_name(os.geteuid())}",
                "choose a --home (or CARPOOL_HOME) of your own",
            )
