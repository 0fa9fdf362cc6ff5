"""A private daemon for one round: started in a directory of its own, spoken to over HTTP, stopped at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import aiohttp
import msgspec

from carpool.protocol.api import EventInfo, JobInfo, JobList, SubmitRequest, SubmitResponse

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
T = TypeVar("T")


class DaemonFailed(Exception):
    """The daemon did not start, or answered with an error; the text says what it said."""


class Session:
    """``async with Session(home, device, policy) as session``: a running daemon and a connection to it."""

    def __init__(self, home: Path, devices: list[str], policy: str, settings: dict[str, int] | None = None) -> None:
        self.home, self._policy, self._devices, self._settings = home, policy, devices, settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Session:
        self.home.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(self._start)
        connector = aiohttp.UnixConnector(str(self.home / "carpool.sock"))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._http = aiohttp.ClientSession("http://carpool", connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._http is not None
        if error is not None:
            await self._cancel_all()
        await self._http.close()
        await asyncio.to_thread(self._stop)

    def _start(self) -> None:
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "carpool.daemon", "--home", str(self.home), "--policy", self._policy]
        command += [part for device in self._devices for part in ("--device", device)]
        command += [part for name, value in self._settings.items() for part in ("--setting", f"{name}={value}")]
        try:
            self._process = subprocess.Popen(
                [*command, "--ready-fd", str(writer)], pass_fds=[writer], stdin=subprocess.DEVNULL
            )
        finally:
            os.close(writer)
        with os.fdopen(reader, "rb") as ready:
            _check_ready(ready.readline(), self.home)

    def _stop(self) -> None:
        """Ask the daemon to end; jobs of this round have ended or been cancelled already."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def request(self, method: str, path: str, answer: type[T], body: msgspec.Struct | None = None) -> T:
        """Raises DaemonFailed with the daemon's own words for any status but 2xx."""
        assert self._http is not None
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        async with self._http.request(method, path, data=data, headers=headers) as response:
            content = await response.read()
            if not response.ok:
                raise DaemonFailed(f"{method} {path}: status {response.status}: {content.decode(errors='replace')}")
            return msgspec.json.decode(content, type=answer)

    async def submit(self, request: SubmitRequest) -> int:
        return (await self.request("POST", "/v1/jobs", SubmitResponse, request)).id

    async def job(self, job: int) -> JobInfo:
        return await self.request("GET", f"/v1/jobs/{job}", JobInfo)

    async def events(self, follow: bool) -> AsyncIterator[EventInfo]:
        """Everything since the daemon's first event; with ``follow`` it goes on until the caller stops."""
        assert self._http is not None
        parameters = {"since": "0", "follow": "1" if follow else "0"}
        async with self._http.get("/v1/events", params=parameters) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.strip():
                    yield msgspec.json.decode(line, type=EventInfo)

    async def _cancel_all(self) -> None:
        """Leave no job behind when a round is given up."""
        with suppress(aiohttp.ClientError, DaemonFailed, msgspec.MsgspecError, OSError):
            for job in (await self.request("GET", "/v1/jobs", JobList)).jobs:
                if job.phase != "ended":
                    await self.request("POST", f"/v1/jobs/{job.id}/cancel", object)


def _check_ready(line: bytes, home: Path) -> None:
    try:
        answer = json.loads(line)
    except ValueError:
        raise DaemonFailed(f"the daemon ended while it started; see {home / 'daemon.log'}") from None
    if isinstance(answer, dict) and answer.get("error"):
        raise DaemonFailed(f"the daemon did not start: {answer['error']}")
