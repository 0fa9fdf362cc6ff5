"""The whole of `carpool serve --engines` but the daemon: engines are processes that compute nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from carpool.protocol.engines import EngineState, EngineWishes, Wish
from carpool.protocol.models import FrontOptions
from carpool.serve.engines.engines import EngineDaemon
from carpool.serve.server import ServerParts, serve
from tests.serve.backend import PATIENCE_S
from tests.serve.fakes import FakeRegistry, until
from tests.serve.plain import PlainLauncher

FAKE = Path(__file__).with_name("fake_engine.py")


class Fronts:
    """`serve` in a task, and a client.  ``told``: what the daemon would have heard, as (process, busy)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "engines.toml"
        self.launcher = PlainLauncher()
        self.told: list[tuple[int, bool]] = []
        self.lines: list[str] = []
        self.states: Mapping[str, EngineState] = {}  # as reported
        self.wishes: dict[str, Wish] = {}  # of users, for the next report
        self.url = ""
        self.stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE_S))

    def write(self, **engines: dict[str, Any]) -> None:
        """Write the file; each engine is the fake one, whose model has the name of ``knows``."""
        lines: list[str] = []
        for name, keys in engines.items():
            model = keys.pop("knows", name)
            cmd = [sys.executable, "-S", str(FAKE), "{port}", model, str(self.directory)]
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in ({"cmd": cmd} | keys).items())]
        self.file.write_text("\n".join(lines))

    def _report(self, states: Mapping[str, EngineState]) -> EngineWishes:
        self.states = states
        wishes, self.wishes = self.wishes, {}
        return EngineWishes(wishes)

    async def start(self, **options: Any) -> None:
        parts = ServerParts(
            FakeRegistry(),
            prepare=None,  # type: ignore[arg-type]
            new_pool=None,  # type: ignore[arg-type]
            engines=EngineDaemon(self.launcher, lambda job, busy: self.told.append((job, busy)), self._report),
        )
        serving = FrontOptions(home="", port=0, store_bytes=1 << 20, engines_file=str(self.file), **options)
        self._task = asyncio.create_task(serve(serving, parts, self.stopping, self.lines.append))
        await until(lambda: self._task.done() or self.lines)
        if self._task.done():
            self._task.result()
        self.url = self.lines[0].removeprefix("serving on ")

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes | aiohttp.FormData) or body is None else json.dumps(body)
        media = {} if isinstance(data, aiohttp.FormData) else {"Content-Type": "application/json"}
        async with self._client.request(
            method, URL(self.url + path, encoded=True), data=data, headers=media | headers
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def complete(self, model: str, prompt: str, **more: Any) -> Answer:
        return await self.ask("POST", "/v1/completions", {"model": model, "prompt": prompt, **more})

    async def began(self, model: str, prompt: str) -> aiohttp.ClientResponse:
        """Return an answer whose head has come; whoever closes it leaves."""
        body = {"model": model, "prompt": prompt, "stream": True}
        return await self._client.post(f"{self.url}/v1/completions", json=body)

    async def stop(self, close: bool = True) -> None:
        self.stopping.set()
        if self._task is not None:
            await self._task
        if close:
            await self._client.close()
        assert all(job.process.returncode is not None for job in self.launcher.jobs)


class Answer:
    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def words(self) -> str:
        """The text of a stream."""
        events = [line.removeprefix("data: ") for line in self.body.decode().splitlines() if line]
        return "".join(json.loads(each)["choices"][0]["delta"]["content"] for each in events if each != "[DONE]")


@pytest.fixture
async def fronts(tmp_path: Path) -> AsyncIterator[Fronts]:
    made = Fronts(tmp_path)
    yield made
    await made.stop()
