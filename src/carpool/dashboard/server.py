"""The page's server: routes, and the objects behind them, from start to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from aiohttp import web

from carpool.dashboard.answers import StaticFiles, error_answer
from carpool.dashboard.connections import entitle, listening
from carpool.dashboard.feed import PageFeed
from carpool.dashboard.forwards import PREFIX, Forwarder
from carpool.dashboard.guard import Guard, Links, add_headers, answered
from carpool.dashboard.place import ListeningPlace
from carpool.dashboard.snapshot import DashboardSnapshot
from carpool.dashboard.tabs import Tabs
from carpool.dashboard.timeline import Stretch, timeline
from carpool.dashboard.upstream import DaemonGone, DaemonRefused, Upstream
from carpool.dashboard.what_if import WhatIf, WhatIfError, what_if
from carpool.protocol.display import user_name
from carpool.protocol.http_connections import json_response

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
        self._feed = PageFeed(self._daemon, self._tabs, DashboardSnapshot(self._daemon, _user()), self._someone)

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


def _user() -> dict[str, object]:
    return {"uid": os.geteuid(), "name": user_name(os.geteuid())}
