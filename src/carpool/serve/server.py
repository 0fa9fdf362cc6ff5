"""The endpoint and the back end behind it, from start to stop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from carpool.devices.memfd import memory_bytes
from carpool.protocol.models import FrontOptions
from carpool.protocol.paths import cache_directory
from carpool.serve.engines.engine import EngineParts, engine_session
from carpool.serve.engines.engines import EngineDaemon, Engines
from carpool.serve.engines.figures import EngineFigures
from carpool.serve.engines.routes import EngineRoutes
from carpool.serve.engines.turns import EngineTurns
from carpool.serve.front import Choices, Front
from carpool.serve.http.access import read_token
from carpool.serve.http.bodies import Bodies
from carpool.serve.http.endpoint import Endpoint, EndpointOptions
from carpool.serve.metrics import Metrics
from carpool.serve.model.image_store import ImageStore
from carpool.serve.oip.errors import StartError
from carpool.serve.pool.launcher import Environment, ModelRegistry
from carpool.serve.pool.pool import Pool
from carpool.serve.prepare.subprocess import Preparing
from carpool.serve.queue.batching import Order

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The parts that reach outside this process."""

    registry: ModelRegistry
    prepare: Preparing
    new_pool: Callable[[Environment], Pool]
    engines: EngineDaemon | None  # None: there are none


class Said(msgspec.Struct, omit_defaults=True):
    """A line for programs.  ``event``: serving; ready or unavailable, of a model; engine, with news of one."""

    event: str
    url: str = ""
    model: str = ""
    reason: str = ""


async def serve(
    serving: FrontOptions, parts: ServerParts, stopping: asyncio.Event, say: Callable[[str], None] | None = None
) -> None:
    """Serve until ``stopping`` is set; then finish running computations and end every worker.  Raises StartError."""
    say = say or _print
    options, metrics = _endpoint_options(serving), Metrics()

    def announce(model: str, reason: str | None) -> None:
        if reason is None:
            _tell(say, serving, Said("ready", model=model), f"model {model} is ready")
        else:
            _tell(say, serving, Said("unavailable", model=model, reason=reason), f"model {model}: {reason}")

    budget = memory_bytes() // 2 if serving.store_bytes is None else serving.store_bytes
    async with _engines(serving, parts, metrics, say) as engines:
        with ImageStore(budget) as store:
            front = Front(parts.registry, parts.prepare, parts.new_pool, store, metrics, _choices(serving), announce)
            endpoint = Endpoint(front, options, metrics, [_routes(each, options) for each in engines])
            url = await endpoint.start()
            try:
                _tell(say, serving, Said("serving", url=url), f"serving on {url}")
                for each in engines:
                    each.begin(url)
                await _watch_until(front, stopping)
            finally:
                await endpoint.stop()
                await front.close()


@asynccontextmanager
async def _engines(
    serving: FrontOptions, parts: ServerParts, metrics: Metrics, say: Callable[[str], None]
) -> AsyncIterator[list[Engines]]:
    """Yield the engines of the file, which may be missing; nothing without a file.  Raises StartError."""
    if serving.engines_file is None or parts.engines is None:
        yield []
        return

    def announce(engine: str, text: str) -> None:
        _tell(say, serving, Said("engine", model=engine, reason=text), f"engine {engine} {text}" if engine else text)

    turns = EngineTurns(parts.engines.set_busy)
    async with engine_session() as session:
        shared = EngineParts(parts.engines.launcher, turns, session, _environment(), announce)
        try:
            engines = Engines(Path(serving.engines_file), shared, EngineFigures(metrics.registry), parts.engines.report)
        except ValueError as error:
            raise StartError(str(error)) from None
        await engines.take_over()
        try:
            yield [engines]
        finally:
            await engines.close()


def _environment() -> dict[str, str]:
    """Return the variables for engines, without those that are not text, which JSON cannot carry."""
    return {name: value for name, value in os.environ.items() if (text := name + value) == _as_text(text)}


def _as_text(value: str) -> str:
    return value.encode(errors="replace").decode()


def _routes(engines: Engines, options: EndpointOptions) -> Callable[[Bodies], EngineRoutes]:
    return lambda bodies: EngineRoutes(engines, bodies, options.token)


async def _watch_until(front: Front, stopping: asyncio.Event) -> None:
    watching = asyncio.create_task(front.watch())
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([watching, stopped], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()  # it ends only by a mistake
    finally:
        watching.cancel()
        stopped.cancel()


def _endpoint_options(serving: FrontOptions) -> EndpointOptions:
    """Convert the options for the endpoint.  Raises StartError."""
    return EndpointOptions(
        serving.host,
        serving.port,
        token=None if serving.token_file is None else read_token(Path(serving.token_file)),
        connections=serving.connections,
    )


def _choices(serving: FrontOptions) -> Choices:
    return Choices(Order(serving.order), serving.queue, frozenset(serving.models), _profiles())


def _profiles() -> Path | None:
    """Return the directory where profiles are kept between starts, readable by their owner only."""
    directory = cache_directory() / "profiles"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.warning("profiles of models are not kept: %s", error)
        return None
    return directory


def _tell(say: Callable[[str], None], serving: FrontOptions, said: Said, text: str) -> None:
    say(msgspec.json.encode(said).decode() if serving.as_json else text)


def _print(text: str) -> None:
    with suppress(BrokenPipeError):  # a closed output is not a reason to stop
        print(text, flush=True)
