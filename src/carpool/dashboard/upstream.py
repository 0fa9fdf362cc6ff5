"""Concurrent requests to the daemon: no request waits for the answer to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
from yarl import URL

from carpool.protocol.api import API_VERSION, PROTOCOL_HEADER, ErrorBody
from carpool.protocol.client import DaemonClient
from carpool.protocol.paths import Home
from carpool.protocol.unix_http import ClientError, NotYourSocket, VersionMismatch, check_owner

T = TypeVar("T")
TIMEOUT_S = 60.0
CONNECTIONS = 32


class DaemonGone(Exception):
    """The daemon does not answer; the text is for people."""


class DaemonRefused(Exception):
    """The daemon has answered with an error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status, self.body = status, body

    def text(self) -> str:
        """Return the daemon's message."""
        try:
            return msgspec.json.decode(self.body, type=ErrorBody).error.message
        except msgspec.DecodeError:
            return str(self)


class OwnedConnector(aiohttp.UnixConnector):
    """Checks the owner of the daemon with each connection: another daemon may have taken the earlier one's place."""

    async def _create_connection(self, *arguments: Any) -> Any:
        protocol: Any = await super()._create_connection(*arguments)
        try:
            check_owner(protocol.transport.get_extra_info("socket"), Path(self.path))
        except NotYourSocket:
            protocol.close()
            raise
        return protocol


class Upstream:
    """``async with Upstream(home) as daemon``.  All methods may raise `DaemonGone`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Upstream:
        connector = OwnedConnector(str(Home(self.home).socket), limit=CONNECTIONS)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def check(self) -> None:
        """Check that a daemon answers, is of this version, and belongs to a user whom this user trusts."""
        await asyncio.to_thread(self._check)

    def _check(self) -> None:
        client = DaemonClient(self.home)
        try:
            client.version()
        except ClientError as error:
            raise DaemonGone(str(error)) from None
        finally:
            client.close()

    @asynccontextmanager
    async def answer(
        self, method: str, target: str, body: bytes | None = None, timeout_s: float | None = TIMEOUT_S
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield any answer, with its body unread.  ``timeout_s``: for the whole answer; None: no limit."""
        assert self._session is not None
        headers = {} if body is None else {"Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        url = URL(f"http://carpool{target}", encoded=True)
        try:
            async with self._session.request(method, url, data=body, headers=headers, timeout=timeout) as answer:
                self._check_protocol(answer)
                yield answer
        except NotYourSocket as error:
            raise DaemonGone(str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DaemonGone(f"the daemon of {self.home} does not answer: {error or type(error).__name__}") from error

    def _check_protocol(self, answer: aiohttp.ClientResponse) -> None:
        theirs = answer.headers.get(PROTOCOL_HEADER)
        if theirs != str(API_VERSION):
            raise DaemonGone(str(VersionMismatch(Home(self.home).socket, theirs)))

    async def get(self, target: str, kind: type[T]) -> T:
        """Return the daemon's answer, decoded as ``kind``.  Raises DaemonRefused."""
        async with self.answer("GET", target) as answer:
            body = await answer.read()
        if answer.status != 200:
            raise DaemonRefused(answer.status, body)
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise DaemonGone(f"the daemon answers in an unknown form: {error}") from None

    async def lines(self, target: str) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an answer that goes on.  Raises DaemonRefused."""
        async with self.answer("GET", target, timeout_s=None) as answer:
            if answer.status != 200:
                raise DaemonRefused(answer.status, await answer.read())
            rest = b""
            async for piece in answer.content.iter_any():
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line
