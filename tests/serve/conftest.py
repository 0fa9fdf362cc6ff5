"""A real endpoint on a real socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from carpool.serve.http.endpoint import Endpoint, EndpointOptions
from carpool.serve.plan.manifest import Source
from tests.serve.backend import PATIENCE_S, NumpyBackend
from tests.serve.fakes import until

if TYPE_CHECKING:
    from carpool.serve.prepare.prepare import Prepared
    from tests.serve.working import Stage

T = TypeVar("T")


class ClockedLoop(asyncio.SelectorEventLoop):
    """Its time is the machine's, and what a test lets pass besides: only then does anybody lose patience."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Server:
    """An endpoint and its back end.  ``url`` is where it listens."""

    def __init__(self, backend: NumpyBackend, options: EndpointOptions) -> None:
        self.backend = backend
        self.options = options
        self._loop = ClockedLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint")
        self._thread.start()
        self.url = self.run(self._start())

    @property
    def address(self) -> str:
        return self.url.partition("://")[2]

    async def _start(self) -> str:
        self.endpoint = Endpoint(self.backend, self.options)
        return await self.endpoint.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """In the endpoint's loop; do not wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.begin(work).result(PATIENCE_S)

    def pass_time(self, seconds: float) -> None:
        """For all timers of the endpoint."""

        async def passed() -> None:
            self._loop.ahead_s += seconds

        self.run(passed())

    def until(self, reached: Callable[[], object]) -> None:
        """Of what the endpoint knows: bytes and ends of connections arrive without an event."""
        self.run(until(reached))

    @contextmanager
    def held(self) -> Iterator[None]:
        """The back end computes nothing meanwhile."""
        self.run(self.backend.hold(True))
        try:
            yield
        finally:
            self.run(self.backend.hold(False))

    def close(self) -> None:
        self.run(self.endpoint.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


Start = Callable[..., Server]
OPTIONS = EndpointOptions(port=0, largest_body=1 << 20, body_bytes=4 << 20, patience_s=PATIENCE_S, drain_s=PATIENCE_S)


@contextmanager
def _serving() -> Iterator[Start]:
    servers: list[Server] = []

    def start(options: EndpointOptions = OPTIONS, **limits: int) -> Server:
        servers.append(Server(NumpyBackend(**limits), options))
        return servers[-1]

    try:
        yield start
    finally:
        for server in servers:
            server.close()


@pytest.fixture
def serving() -> Iterator[Start]:
    """Starts servers with limits of their own."""
    with _serving() as start:
        yield start


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    from tests.serve.working import Stage  # PyTorch takes seconds: not for all who collect the tests

    made = Stage(tmp_path)
    yield made
    made.close()


Prepare = Callable[[str], "Prepared"]


@pytest.fixture(scope="session")
def prepare_once() -> Iterator[Prepare]:
    """A model of the zoo with a group per layer; nobody writes to its image, so all tests have the same."""
    from carpool.serve.prepare.prepare import prepare
    from tests.serve import zoo

    made: dict[str, Prepared] = {}

    def once(name: str) -> Prepared:
        if name not in made:
            source = Source(f"tests.serve.zoo:{name}", seed=7)
            made[name] = prepare(source, (zoo.INPUTS[name](),), group=zoo.per_layer)
        return made[name]

    yield once
    for each in made.values():
        os.close(each.image)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One for all tests of a module."""
    with _serving() as start:
        yield start()
