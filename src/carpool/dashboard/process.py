"""The process of `carpool dashboard`: serves the page until it is told to stop, and makes links to the page."""

from __future__ import annotations

import asyncio
import html
import os
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from carpool.dashboard.guard import Links
from carpool.dashboard.server import DashboardServer, ListeningPlace

#: The port at the other end of `ssh -L`.
FORWARDED_PORT = 8080
#: Longest time for which the file with a link stays, and how often its use is looked for.
KEPT_S, LOOK_S = 60.0, 0.5


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
    asyncio.run(DashboardProcess(home, place, tell, browser).run())


async def open_in_browser(
    url: str, unused: Callable[[], bool], open_page: Callable[[str], bool] = webbrowser.open
) -> bool:
    """Open a page through a file that only its user can read, because all users can read a command line.

    Returns whether a browser was found.  The file goes once the link is used, or in a minute.

    ``open_page``: takes the file's address, and returns whether a browser has been found.
    """
    with tempfile.TemporaryDirectory(prefix="carpool-page-") as folder:  # mode 0700
        path = Path(folder) / "page.html"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_redirect(url))
        found = await asyncio.to_thread(open_page, path.as_uri())
        waited_s = 0.0
        while found and unused() and waited_s < KEPT_S:
            await asyncio.sleep(LOOK_S)
            waited_s += LOOK_S
    return found


def _redirect(url: str) -> str:
    quoted = html.escape(url, quote=True)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Carpool</title><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={quoted}"></head><body><a href="{quoted}">Carpool</a></body></html>
"""
