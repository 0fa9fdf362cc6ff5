"""One subscription to the daemon for all open pages: at most ten messages a second, and none while no page is open."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import msgspec

from carpool.dashboard.snapshot import DashboardSnapshot
from carpool.dashboard.tabs import Tabs, run_until_first
from carpool.dashboard.upstream import DaemonGone, DaemonRefused, Upstream
from carpool.protocol.api import EventInfo

TURNS_S = 0.1
CHANGES_S = 1.0
PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


class PageFeed:
    """Feeds the pages with messages, as long as `run` runs."""

    def __init__(self, daemon: Upstream, tabs: Tabs, snapshot: DashboardSnapshot, open_tabs: asyncio.Event) -> None:
        """``open_tabs``: set while a page is open."""
        self._daemon, self._tabs, self._snapshot, self._open_tabs = daemon, tabs, snapshot, open_tabs

    async def run(self) -> None:
        """Follow the daemon, and each later daemon of the home; never returns."""
        pause_s = PAUSE_S
        while True:
            await self._open_tabs.wait()
            begun_s = time.monotonic()
            try:
                await self._follow()
                continue  # no page is open any more
            except DaemonGone as error:
                text = str(error)
            except DaemonRefused as error:
                text = f"the daemon refuses: {error.text()}"
            self._tabs.tell_gone(_encoded({"kind": "daemon", "connected": False, "text": text}))
            pause_s = PAUSE_S if time.monotonic() - begun_s > LONGEST_PAUSE_S else min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _follow(self) -> None:
        """Follow the daemon until no page is open.  Events begin before the state, so no change is missed between."""
        await self._daemon.check()
        since = await self._newest()
        self._snapshot.begin()
        await run_until_first(self._listen(since), self._send_while_open())

    async def _newest(self) -> int:
        async with aclosing(self._daemon.lines("/v1/events?limit=1")) as lines:
            found = [msgspec.json.decode(line, type=EventInfo).seq async for line in lines]
        return found[-1] if found else 0

    async def _listen(self, since: int) -> None:
        async with aclosing(self._daemon.lines(f"/v1/events?follow=1&since={since}")) as lines:
            async for line in lines:
                self._snapshot.heard(msgspec.json.decode(line, type=EventInfo))
        raise DaemonGone("the daemon has stopped")

    async def _send_while_open(self) -> None:
        self._tabs.need_state()
        looked_s = time.monotonic()
        while self._open_tabs.is_set():
            message = {} if self._snapshot.too_much else self._snapshot.turns()
            if time.monotonic() - looked_s >= CHANGES_S:
                message |= await self._snapshot.changes()
                looked_s = time.monotonic()
            if message:
                self._tabs.tell(_encoded({"kind": "changes", **message}))
                self._snapshot.forget_ended()
            await self._bring_up_to_date()
            await asyncio.sleep(TURNS_S)

    async def _bring_up_to_date(self) -> None:
        """Send the whole state if a page was just opened or is too slow, or if there were too many changes."""
        if self._snapshot.too_much or self._tabs.behind():
            self._tabs.begin(_encoded(await self._snapshot.load()))


def _encoded(message: dict[str, object]) -> str:
    return msgspec.json.encode(message).decode()
