"""The process of `carpool dashboard`: serves the page until it is told to stop, and makes links to the page."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from carpool.dashboard.browser import open_in_browser
from carpool.dashboard.links import Links
from carpool.dashboard.place import ListeningPlace
from carpool.dashboard.server import DashboardServer

#: The port at the other end of `ssh -L`.
FORWARDED_PORT = 8080


@dataclass(frozen=True, slots=True)
class Link:
    """``secret``: the link's key in `Links`; ``ssh``: a command to reach a Unix socket from elsewhere, or empty."""

    url: str
    secret: str
    ssh: str = ""


class DashboardProcess:
    """``tell`` is called with each new link."""

    def __init__(self, home: Path, place: ListeningPlace, tell: Callable[[Link], None], browser: bool) -> None:
        self._place, self._tell, self._browser = place, tell, browser
        self._links = Links()
        self._server = DashboardServer(home, place, self._links)
        self._opening: set[asyncio.Task[bool]] = set()

    async def run(self) -> None:
        """Serve until SIGINT or SIGTERM.  Raises DaemonGone if there is no daemon at the start."""
        loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self._server.serve(self._ready))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, serving.cancel)
        try:
            with suppress(asyncio.CancelledError):
                await serving
        finally:
            self._place.close()

    def _ready(self) -> None:
        self._new_link(self._browser)
        if sys.stdin is not None and sys.stdin.isatty():
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._typed)

    def _typed(self) -> None:
        """Make a new link for a line of input; at the end of the input, stop reading."""
        if os.read(sys.stdin.fileno(), 1024):
            self._new_link(self._browser)
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def _new_link(self, browser: bool) -> None:
        link = self._link(self._links.new())
        self._tell(link)
        if browser and not link.ssh:
            task = asyncio.create_task(open_in_browser(link.url, lambda: self._links.unused(link.secret)))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _link(self, secret: str) -> Link:
        if self._place.port is not None:
            return Link(f"http://127.0.0.1:{self._place.port}/#link={secret}", secret)
        ssh = f"ssh -N -L {FORWARDED_PORT}:{self._place.path} {socket.gethostname()}"
        return Link(f"http://127.0.0.1:{FORWARDED_PORT}/#link={secret}", secret, ssh)


def run(home: Path, place: ListeningPlace, tell: Callable[[Link], None], browser: bool) -> None:
    """Serve the page until SIGINT or SIGTERM.  Raises DaemonGone."""
    asyncio.run(_run(home, place, tell, browser))


async def _run(home: Path, place: ListeningPlace, tell: Callable[[Link], None], browser: bool) -> None:
    await DashboardProcess(home, place, tell, browser).run()
