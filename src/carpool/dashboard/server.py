"""The page's server: routes, and the objects behind them, from start to stop.

The place where the server listens: a free port of 127.0.0.1, or a Unix socket that only its user can open.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from aiohttp import web

from carpool.dashboard.connections import entitle, listening
from carpool.dashboard.feed import PageFeed
from carpool.dashboard.forwards import PREFIX, Forwarder
from carpool.dashboard.guard import Guard, Links, StaticFiles, add_headers, answered, error_answer
from carpool.dashboard.snapshot import DashboardSnapshot
from carpool.dashboard.tabs import Tabs
from carpool.dashboard.timeline import Stretch, timeline
from carpool.dashboard.upstream import DaemonGone, DaemonRefused, Upstream
from carpool.dashboard.what_if import WhatIf, WhatIfError, what_if
from carpool.protocol.display import user_name
from carpool.protocol.http_connections import json_response

BACKLOG = 64
HOST = "127.0.0.1"


class PlaceError(Exception):
    """The server cannot listen there; the text says what to do."""


class ListeningPlace(NamedTuple):
    """``port``: None on a Unix socket, whose path is ``path``."""

    listener: socket.socket
    port: int | None = None
    path: Path | None = None

    def close(self) -> None:
        """Close the listener, and remove its socket from the file system."""
        self.listener.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def on_port(port: int) -> ListeningPlace:
    """Listen on a port of 127.0.0.1; 0: any free port.  Raises PlaceError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier server may have ended just now
        listener.bind((HOST, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PlaceError(
            f"cannot listen on port {port}: {error.strerror}; choose another --port, or leave it out"
        ) from None
    return ListeningPlace(listener, int(listener.getsockname()[1]))


def on_socket(path: Path) -> ListeningPlace:
    """Listen on a socket of mode 0600 in a directory that only this user can write to.  Raises PlaceError."""
    _check_directory(path.parent)
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PlaceError(f"cannot listen on {path}: {error.strerror or error}; choose another --socket") from None
    finally:
        os.umask(before)
    return ListeningPlace(listener, path=path)


def _check_directory(directory: Path) -> None:
    try:
        about = directory.stat()
    except OSError as error:
        raise PlaceError(f"cannot make a socket in {directory}: {error.strerror}") from None
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PlaceError(f"others can replace files in {directory}: choose a directory of your own, of mode 0700")


def _remove_stale(path: Path) -> None:
    """Remove a socket on which no process listens any more.  Raises PlaceError for anything else at ``path``."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise PlaceError(f"{path} exists and is not a socket: choose another --socket")
        with socket.socket(socket.AF_UNIX) as probe, suppress(ConnectionRefusedError):
            probe.connect(os.fspath(path))
            raise PlaceError(f"another program already listens on {path}: end it, or choose another --socket")
        path.unlink()


LARGEST_BODY = 1 << 20


class _Exchange(msgspec.Struct, forbid_unknown_fields=True):
    link: str


class DashboardServer:
    """One daemon's page, for one user."""

    def __init__(self, home: Path, place: ListeningPlace, links: Links) -> None:
        self._place, self._links = place, links
        self._daemon = Upstream(home)
        self._someone = asyncio.Event()
        self._tabs = Tabs(links, self._tabs_changed)
        user = {"uid": os.geteuid(), "name": user_name(os.geteuid())}
        self._feed = PageFeed(self._daemon, self._tabs, DashboardSnapshot(self._daemon, user), self._someone)

    async def serve(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled; ``ready`` is called when requests are answered.  Raises DaemonGone at the start."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._daemon)
            await self._daemon.check()
            runner = web.AppRunner(self._app(), handle_signals=False, handler_cancellation=True, shutdown_timeout=1.0)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await stack.enter_async_context(listening(runner, self._place.listener))
            ready()
            await self._feed.run()

    def _tabs_changed(self) -> None:
        if len(self._tabs):
            self._someone.set()
        else:
            self._someone.clear()

    def _app(self) -> web.Application:
        guard = Guard(self._links, self._place.port)

        @web.middleware
        async def guarded(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            refusal = guard.refusal(request)
            if refusal is not None:
                return refusal
            if guard.needs_token(request.path):
                entitle(request)
            return await answered(request, handler)

        app = web.Application(middlewares=[guarded], client_max_size=LARGEST_BODY)
        app.on_response_prepare.append(add_headers)
        files = StaticFiles()
        app.router.add_get("/", files.index)
        app.router.add_get("/static/{path:.*}", files.file)
        app.router.add_post("/api/session", self._session)
        app.router.add_get("/api/timeline", self._timeline)
        app.router.add_post("/api/what-if", self._what_if)
        app.router.add_route("*", PREFIX + "/{rest:.*}", Forwarder(self._daemon).handle)
        app.router.add_get("/ws", self._tabs.handle)
        return app

    async def _session(self, request: web.Request) -> web.Response:
        """Exchange a link for a token."""
        try:
            link = msgspec.json.decode(await request.read(), type=_Exchange).link
        except msgspec.DecodeError as error:
            return error_answer(400, "bad_body", f"the request is not understood: {error}")
        token = self._links.exchange(link)
        if token is None:
            hint = "press Enter in the terminal where `carpool dashboard` runs, and follow the new link"
            return error_answer(403, "link_used", "this link has been used, or is too old", hint)
        return json_response({"token": token})

    async def _what_if(self, request: web.Request) -> web.Response:
        """Simulate another policy; the simulation ends if the page goes away."""
        try:
            wanted = msgspec.json.decode(await request.read(), type=WhatIf)
            return json_response(await what_if(self._daemon.home, wanted))
        except msgspec.DecodeError as error:
            return error_answer(400, "bad_body", f"the request is not understood: {error}")
        except WhatIfError as error:
            return error_answer(error.status, error.info.code, error.info.message, error.info.hint)

    async def _timeline(self, request: web.Request) -> web.Response:
        try:
            return json_response(await timeline(self._daemon, Stretch.of(request.query)))
        except ValueError as error:
            return error_answer(400, "bad_parameter", str(error))
        except DaemonRefused as error:
            return web.Response(status=error.status, body=error.body, content_type="application/json")
        except DaemonGone as error:
            return error_answer(502, "daemon_gone", str(error), "carpool up starts one")
