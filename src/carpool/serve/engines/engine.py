"""One engine: its process is a job of the daemon, from the first request that needs it to the end of its `ttl`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp

from carpool.protocol.api import JobInfo, SubmitRequest
from carpool.protocol.engines import ENDING, OFF, READY, STARTING, EngineSpec, EngineStateName, WeightsFormat
from carpool.protocol.units import exact_time
from carpool.serve.engines.mapped import mapped_weights
from carpool.serve.engines.ports import HOST, free_port, listening_user
from carpool.serve.engines.turns import EngineTurns
from carpool.serve.oip.errors import EngineBusy, EngineLost, EngineStarting, ServeError, ShuttingDown
from carpool.serve.pool.launcher import CannotStart, WorkerJob

HEALTH_S = (0.05, 1.0)  # between two looks at an engine that starts: at first, and at most
ANSWER_S = 5.0  # for one answer to a look
MOST_PAUSE_S = 60.0  # before another start, after starts that have failed
RETRY_AFTER_S = 1
TICK_S = 1.0


class EngineJob(WorkerJob, Protocol):
    """The job that is an engine's process."""

    number: int
    pid: int | None  # of its process; None: not known yet

    async def pause(self) -> None:
        """Move its memory out of its device."""

    async def resume(self) -> None:
        """Let it go on."""

    async def is_reachable(self) -> bool:
        """Whether the daemon answers."""


class EngineLauncher(Protocol):
    """Starts engines."""

    async def left(self) -> Sequence[tuple[JobInfo, EngineJob]]:
        """Return the user's engines that run and that no front serves."""

    async def submit(self, request: SubmitRequest) -> EngineJob:
        """Start a service.  Raises CannotStart."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts that engines share.  ``environment``: variables of each; ``announce`` is told of starts and ends."""

    launcher: EngineLauncher
    turns: EngineTurns
    session: aiohttp.ClientSession
    environment: Mapping[str, str]
    announce: Callable[[str, str], None]


def engine_session() -> aiohttp.ClientSession:
    """Return the client of all engines, which adds nothing to requests.

    Each request has a connection of its own: closing it is how an engine hears that its client has left.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )


class Engine:
    """An engine and its requests: `request` is a block around each, and starts the process if there is none."""

    def __init__(self, name: str, spec: EngineSpec, parts: EngineParts) -> None:
        """Make an engine that is off."""
        self.name = name
        self.spec = spec
        self.keys: Sequence[str] | None = None  # of clients; None: who may use the server may use the engine
        self.state: EngineStateName = OFF
        self.reason = ""  # why the last start has failed
        self.job: EngineJob | None = None
        self.in_flight = 0
        self.starts = 0
        self.mapped_bytes: dict[WeightsFormat, int] = {}  # as at the last look
        self._looked_s = 0.0
        self._parts = parts
        self.port = 0
        self._used_s = 0.0  # when the last request ended
        self._failures = 0
        self._not_before_s = 0.0
        self._closed = False
        self._asleep = False  # its job is paused
        self._life: asyncio.Task[None] | None = None
        self._up: asyncio.Future[None] | None = None  # done once the process that starts is ready, or is not
        self._over = asyncio.Event()  # the process is to end
        self._using = 0  # requests that have found the process ready; the others wait for it, or for its end
        self._calm = asyncio.Event()  # there are none
        self._calm.set()
        self._moving = asyncio.Lock()  # its memory, out or back

    @property
    def url(self) -> str:
        """The address of its process."""
        return f"http://{HOST}:{self.port}"

    @asynccontextmanager
    async def request(self) -> AsyncIterator[str]:
        """Hold the engine for one request: start it unless it is ready, and yield its address.

        Raises EngineBusy, EngineLost, EngineStarting, ShuttingDown.
        """
        if self._closed:
            raise ShuttingDown("the server is stopping")
        if self.in_flight >= self.spec.max_in_flight:
            raise EngineBusy(f"{self.name} has {self.in_flight} requests, which is its limit", RETRY_AFTER_S)
        try:
            self._count(1, 0)
            await self._ready()
            self._count(0, 1)
            try:
                await self._awake()
                self._check_port()
                yield self.url
            finally:
                self._count(0, -1)
        finally:
            self._count(-1, 0)

    async def _ready(self) -> None:
        """Start the engine unless it is ready.  Raises EngineLost, EngineStarting, ShuttingDown."""
        while self.state != READY:
            if self.state == ENDING and self._life is not None:
                await asyncio.wait({self._life})
            elif self.state == OFF:
                self._begin()
            if self._up is not None:
                await asyncio.shield(self._up)

    async def sleep(self) -> None:
        """Move the memory of an engine without requests out of its device; the next request brings it back."""
        async with self._moving:
            if self.state == READY and self.job is not None and not self.in_flight:
                self._asleep = True
                await self.job.pause()

    async def look(self) -> None:
        """Look for weights that are only mapped, unless nothing has happened since the last look."""
        pid = None if self.job is None else self.job.pid
        if self.state == READY and pid is not None and self._looked_s < self._used_s:
            self._looked_s = asyncio.get_running_loop().time()
            self.mapped_bytes = await asyncio.to_thread(mapped_weights, pid)

    async def _awake(self) -> None:
        async with self._moving:
            if self._asleep and self.job is not None:
                await self.job.resume()
                self._asleep = False

    def take_over(self, job: EngineJob, port: int) -> None:
        """Go on with a process that an earlier front has started."""
        self.port, self._asleep = port, True  # perhaps: the first request makes sure
        self._begin(job)

    def may_start(self) -> None:
        """Let the next request start the engine, however lately a start has failed."""
        self._not_before_s = 0.0

    async def stop(self) -> None:
        """End the process once its requests are answered; the next request starts it again."""
        self._over.set()
        if self._life is not None:
            await asyncio.wait({self._life})

    async def make_room(self) -> None:
        """End a process that has no requests: the host store has no room for its memory."""
        if self.state == READY and not self.in_flight:
            self._note_end("the host store was full, and it had no requests; the next one starts it")
            await self.stop()

    async def close(self) -> None:
        """End the process for good, and refuse requests."""
        self._closed = True
        await self.stop()

    def _count(self, in_flight: int, using: int) -> None:
        """Count requests, and let the daemon know whether the engine has any."""
        self.in_flight += in_flight
        self._using += using
        self._used_s = asyncio.get_running_loop().time()
        (self._calm.clear if self._using else self._calm.set)()
        if self.job is not None:
            self._parts.turns.set(self.job.number, self._using > 0)

    def _begin(self, job: EngineJob | None = None) -> None:
        """Begin a life, of a new process or a given one.

        Raises EngineLost while it is too early after a start that has failed; ShuttingDown.
        """
        loop = asyncio.get_running_loop()
        if self._closed:
            raise ShuttingDown("the server is stopping")
        if (left := self._not_before_s - loop.time()) > 0:
            raise EngineLost(f"{self.name} does not start: {self.reason}", max(1, round(left)))
        self.state, self.starts = STARTING, self.starts + (job is None)
        self._over.clear()
        self._up = loop.create_future()
        self._up.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps no request waits
        self._life = asyncio.create_task(self._live(self._up, job))

    async def _live(self, up: asyncio.Future[None], job: EngineJob | None) -> None:
        """Start the process, let it serve, and end it."""
        ended: asyncio.Task[str] | None = None
        try:
            self.job = await self._launched() if job is None else job
            ended = asyncio.create_task(self.job.ended())
            await self._healthy(ended)
            self._is_ready(up)
            self._note_end(await self._served(ended))
        except (CannotStart, ServeError, OSError, ValueError) as error:
            self._has_failed(up, error)
        finally:
            if not up.done():
                up.set_exception(ShuttingDown("the server is stopping"))
            await self._end(ended)

    async def _launched(self) -> EngineJob:
        """Submit the job.  Raises CannotStart."""
        spec = self.spec
        self.port = free_port()
        env = {**self._parts.environment, **spec.variables(self.port)}
        request = SubmitRequest(
            spec.argv(self.port),
            spec.cwd or str(Path.cwd()),
            env,
            name=self.name,
            service=spec.priority,
            engine=True,
            pin=spec.pin,
            device=spec.device,
        )
        return await self._parts.launcher.submit(request)

    async def _healthy(self, ended: asyncio.Task[str]) -> None:
        """Wait until the process answers.  Raises EngineLost, EngineStarting."""
        try:
            async with asyncio.timeout(self.spec.start_us / 1e6):
                await self._answering(ended)
        except TimeoutError:
            text = f"{self.name} was not ready within {exact_time(self.spec.start_us)} ({self._log()})"
            raise EngineStarting(text, RETRY_AFTER_S) from None

    async def _answering(self, ended: asyncio.Task[str]) -> None:
        pause, most = HEALTH_S
        while not await self._answers():
            over = asyncio.create_task(self._over.wait())
            done, _ = await asyncio.wait({ended, over}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if ended in done:
                raise EngineLost(f"{self.name} has ended before it was ready: {ended.result()}")
            if over in done:
                raise EngineLost(f"{self.name} was stopped before it was ready")
            pause = min(most, pause * 1.5)

    async def _answers(self) -> bool:
        """Whether the process is ready; programs of other users that have taken its port are not believed."""
        self._check_port()
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            patience = aiohttp.ClientTimeout(ANSWER_S)
            async with self._parts.session.get(self.url + self.spec.health, timeout=patience) as answer:
                return answer.status == 200
        return False

    def _check_port(self) -> None:
        """Raise EngineLost if another user listens on the port: the process has ended, or has not begun to listen."""
        if listening_user(self.port) not in (None, os.geteuid(), 0):
            raise EngineLost(f"port {self.port} of {self.name} was taken by another user; ask again")

    def _is_ready(self, up: asyncio.Future[None]) -> None:
        self.state, self.reason, self._failures = READY, "", 0
        self._used_s = asyncio.get_running_loop().time()
        self._parts.announce(self.name, "is ready")
        up.set_result(None)

    def _has_failed(self, up: asyncio.Future[None], error: Exception) -> None:
        self.reason = str(error)
        if not self._over.is_set():  # it has not been stopped
            self._failures += 1
            pause_s = min(MOST_PAUSE_S, 2.0 ** (self._failures - 1))
            self._not_before_s = asyncio.get_running_loop().time() + pause_s
        self._parts.announce(self.name, f"does not start: {error}")
        up.set_exception(error if isinstance(error, ServeError) else EngineLost(f"{self.name}: {error}"))

    async def _served(self, ended: asyncio.Task[str]) -> str:
        """Wait until the process has ended, or is to end; return how it has ended, if it has."""
        over = asyncio.create_task(self._over.wait())
        try:
            while not (self._over.is_set() or ended.done() or await self._is_to_end()):
                await asyncio.wait({ended, over}, timeout=self._patience_s(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        return ended.result() if ended.done() else ""

    def _patience_s(self) -> float:
        """Return how long to wait until it may have been without requests for its `ttl`."""
        return TICK_S if self.spec.ttl_us is None else min(TICK_S, self.spec.ttl_us / 1e6)

    async def _is_to_end(self) -> bool:
        """Whether it is unused; while the daemon is away nothing could end it, and it goes on answering."""
        return self._unused() and self.job is not None and await self.job.is_reachable() and self._unused()

    def _unused(self) -> bool:
        ttl_us = self.spec.ttl_us
        idle_s = asyncio.get_running_loop().time() - self._used_s
        return ttl_us is not None and not self.in_flight and idle_s * 1e6 >= ttl_us

    def _note_end(self, how: str) -> None:
        if how:
            self.reason = how
            self._parts.announce(self.name, f"has ended: {how}")

    async def _end(self, ended: asyncio.Task[str] | None) -> None:
        """End the process, if it has not ended, after its requests."""
        self.state, job = ENDING, self.job
        if job is not None and ended is not None:
            if not ended.done():
                await self._calm.wait()
            while not ended.done():  # while the daemon is away it is asked again
                await job.cancel()
                await asyncio.wait({ended}, timeout=ANSWER_S)
            self._parts.turns.forget(job.number)
        self.state, self.job, self._up, self._asleep, self.mapped_bytes = OFF, None, None, False, {}

    def _log(self) -> str:
        return "no job" if self.job is None else f"carpool logs {self.job.number}"
