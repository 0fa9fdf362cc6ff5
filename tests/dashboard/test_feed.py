"""What open pages hear of a real daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from carpool.protocol.api import SubmitRequest
from tests.dashboard.conftest import PATIENCE_S, Page
from tests.live import LiveDaemon

Message = dict[str, Any]


class Listening:
    """All messages so far."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.heard = socket, list[Message]()

    async def until(self, wanted: Callable[[Message], bool]) -> Message:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.heard.append(await self.socket.receive_json())
                if wanted(self.heard[-1]):
                    return self.heard[-1]


@asynccontextmanager
async def listening(page: Page) -> AsyncIterator[Listening]:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{page.url}/ws", max_msg_size=0) as socket:
        await socket.send_json({"token": page.token})
        yield Listening(socket)


def is_state(message: Message) -> bool:
    return bool(message["kind"] == "state")


def submit(live: LiveDaemon, name: str, code: str = "pass", **more: Any) -> int:
    return live.client.submit(SubmitRequest(["python3", "-c", code], "/", {"PATH": "/usr/bin:/bin"}, name=name, **more))


async def test_a_job_appears_changes_and_ends(live: LiveDaemon, page: Page) -> None:
    async with listening(page) as first, listening(page) as second:
        await first.until(is_state)
        await second.until(is_state)
        job = submit(live, "seen", hold=True)

        def row(message: Message, phase: str) -> bool:
            return any(one["id"] == job and one["phase"] == phase for one in message.get("jobs", []))

        await first.until(lambda message: row(message, "queued"))
        live.client.release(job)
        await asyncio.gather(*(one.until(lambda message: row(message, "ended")) for one in (first, second)))
    async with listening(page) as third:
        state = await third.until(is_state)
        assert row(state, "ended") and not state["more"]


async def test_settings_and_devices_are_told(live: LiveDaemon, page: Page) -> None:
    async with listening(page) as heard:
        await heard.until(is_state)
        answer = page.ask("PUT", "/api/daemon/v1/policy", {"name": "fifo"})
        assert answer.status == 200
        await heard.until(lambda message: message.get("policy", {}).get("name") == "fifo")
        job = submit(live, "there", "import time; time.sleep(600)")
        await heard.until(lambda message: job in _jobs(message))
        live.client.cancel(job)
        await heard.until(lambda message: "devices" in message and job not in _jobs(message))


def _jobs(message: Message) -> list[int]:
    return [job for device in message.get("devices", {}).get("devices", []) for job in device["jobs"]]


async def test_the_next_daemon_is_followed(live: LiveDaemon, page: Page) -> None:
    async with listening(page) as heard:
        await heard.until(is_state)
        live.kill()
        gone = await heard.until(lambda message: bool(message["kind"] == "daemon"))
        assert gone["connected"] is False and gone["text"]
        answer = await asyncio.to_thread(page.ask, "GET", "/api/daemon/v1/jobs")
        assert (answer.status, answer.json()["error"]["code"]) == (502, "daemon_gone")
        live.start()
        await heard.until(is_state)
        job = submit(live, "later")
        await heard.until(lambda message: any(one["id"] == job for one in message.get("jobs", [])))


async def test_a_page_that_does_not_read_is_brought_up_to_date_at_once(live: LiveDaemon, page: Page) -> None:
    async with listening(page) as slow, listening(page) as quick:
        await quick.until(is_state)
        jobs = [submit(live, "n" * 100, hold=True) for _ in range(100)]
        await quick.until(lambda message: any(one["id"] == jobs[-1] for one in message.get("jobs", [])))
        await slow.until(lambda message: any(one["id"] == jobs[-1] for one in message.get("jobs", [])))
        for job in jobs:
            live.client.cancel(job)
        for one in (slow, quick):
            await one.until(
                lambda message: any(row["id"] == jobs[-1] and row["outcome"] for row in message.get("jobs", []))
            )
