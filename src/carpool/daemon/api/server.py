"""The HTTP server on the Unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
import stat

from aiohttp import web

from carpool.daemon.api.context import CONTEXT, Context
from carpool.daemon.api.entrance import Entrance
from carpool.daemon.api.metrics import MetricsServer, count
from carpool.daemon.api.middleware import add_protocol_header, guard
from carpool.daemon.api.openapi import openapi
from carpool.daemon.api.routes import add_routes
from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import Home

LARGEST_BODY = 16 << 20  # environments may be large
LONGEST_SOCKET_PATH = 107  # sockaddr_un


def make_app(context: Context) -> web.Application:
    """The application, with its middleware and routes; it listens nowhere yet."""
    app = web.Application(middlewares=[count, guard], client_max_size=LARGEST_BODY)
    app[CONTEXT] = context
    add_routes(app)
    app.router.add_get("/openapi.json", openapi)
    app.on_response_prepare.append(add_protocol_header)
    return app


class ApiServer:
    """The API while it is served."""

    def __init__(self, runner: web.AppRunner, listener: asyncio.Server, metrics: MetricsServer | None) -> None:
        self._runner = runner
        self._listener = listener
        self._metrics = metrics

    async def close(self) -> None:
        """Nobody is let in any more; who is there is given a moment."""
        self._listener.close()
        await self._runner.cleanup()
        if self._metrics is not None:
            await self._metrics.close()


async def serve(
    context: Context, mode: int, listening: socket.socket | None, metrics: socket.socket | None
) -> ApiServer:
    """Listen; the socket appears with its final permissions.

    ``listening``: it is there already; ``metrics``: metrics are served there, too.
    """
    further = None if metrics is None else await MetricsServer(context.metrics).start(metrics)
    runner = web.AppRunner(make_app(context), access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    server, limits = runner.server, context.limits
    assert server is not None, "it has been set up"

    def entrance() -> Entrance:
        return Entrance(server, limits.connections, context.home.limits)

    if listening is not None:
        return ApiServer(runner, await asyncio.get_running_loop().create_unix_server(entrance, sock=listening), further)
    context.home.socket.unlink(missing_ok=True)
    old = os.umask(0o777 & ~mode)
    try:
        path = str(context.home.socket)
        listener = await asyncio.get_running_loop().create_unix_server(entrance, path, backlog=1024)
    finally:
        os.umask(old)
    return ApiServer(runner, listener, further)


def check_socket(home: Home) -> None:
    """Raises StartupError if this path cannot be, or is not, a socket of ours."""
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
                f"{path} belongs to uid {status.st_uid}, you are uid {os.geteuid()}",
                "choose a --home (or CARPOOL_HOME) of your own",
            )
