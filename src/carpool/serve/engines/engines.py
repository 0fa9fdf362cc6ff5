"""All engines of a front: by model, from start to end, and as the daemon is told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from carpool.core.spelling import did_you_mean
from carpool.protocol.engines import OFF, EngineSpec, EngineState, EngineWishes, model_names
from carpool.protocol.models import LONGEST_REASON
from carpool.protocol.unix_http import ClientError
from carpool.serve.engines.engine import Engine, EngineLauncher, EngineParts
from carpool.serve.engines.figures import EngineFigures
from carpool.serve.oip.errors import ServeError, UnknownModel

log = logging.getLogger(__name__)

#: Tells the daemon the states of engines, and returns what users have wished of them.
Report = Callable[[Mapping[str, EngineState]], EngineWishes]
REPORT_S = 1.0
CLOSE_S = 40.0  # a process has a grace time of its own after SIGTERM


@dataclass(frozen=True, slots=True)
class EngineDaemon:
    """The daemon.  ``set_busy`` and ``report`` are called in threads, and may raise ClientError."""

    launcher: EngineLauncher
    set_busy: Callable[[int, bool], None]  # by job
    report: Report


class Engines:
    """Engines by name and by model: `begin` first, and `close` at the end."""

    def __init__(
        self, specs: Mapping[str, EngineSpec], parts: EngineParts, figures: EngineFigures, report: Report
    ) -> None:
        """Make the engines.  ``report``: called in a thread with their states, it may raise ClientError."""
        self.figures = figures
        self._tell = report
        self.session = parts.session
        self._turns = parts.turns
        self._engines = {name: Engine(name, spec, parts) for name, spec in specs.items()}
        self._models = {model: each for each in self._engines.values() for model in model_names(each.name, each.spec)}
        for engine in self._engines.values():
            figures.watch(engine)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, url: str) -> None:
        """Start what is to be started at once.  ``url``: the front's, for users who ask which engines there are."""
        self._spawn(self._turns.watch())
        self._spawn(self._report(url))
        for engine in self._engines.values():
            if engine.spec.preload:
                self._spawn(_ready(engine))

    async def close(self) -> None:
        """End all engines."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*(engine.close() for engine in self._engines.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._turns.close()
        await self.session.close()

    def all(self) -> Collection[Engine]:
        """Return all engines."""
        return self._engines.values()

    def models(self) -> Mapping[str, Engine]:
        """Return the engines by the models that they answer to."""
        return self._models

    def of_model(self, model: str) -> Engine:
        """Return the engine that answers to a model.  Raises UnknownModel."""
        engine = self._models.get(model)
        if engine is None:
            hint = did_you_mean(model, self._models)
            raise UnknownModel(f"there is no model {model[:200]!r}; {hint}known: {', '.join(self._models)}")
        return engine

    async def _report(self, url: str) -> None:
        """Report to the daemon for ever; while it does not answer everything stays as it is."""
        while True:
            states = {engine.name: self._state(engine, url) for engine in self._engines.values()}
            try:
                self._heed(await asyncio.to_thread(self._tell, states))
            except ClientError as error:
                log.debug("the daemon does not know the states of engines: %s", error)
            await asyncio.sleep(REPORT_S)

    def _heed(self, wishes: EngineWishes) -> None:
        """Do what users have wished of engines."""
        for name, wish in wishes.engines.items():
            if (engine := self._engines.get(name)) is not None:
                self._spawn({"start": _ready, "stop": Engine.stop, "sleep": Engine.sleep}[wish](engine))

    def _state(self, engine: Engine, url: str) -> EngineState:
        first_us, per_s = self.figures.last_minute(engine.name)
        return EngineState(
            engine.state,
            reason=engine.reason[:LONGEST_REASON] if engine.state == OFF else "",
            models=list(model_names(engine.name, engine.spec)),
            job=None if engine.job is None else engine.job.number,
            in_flight=engine.in_flight,
            first_token_us=first_us,
            tokens_per_s=per_s,
            pinned=engine.spec.pin,
            url=url,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _ready(engine: Engine) -> None:
    """Start an engine for nobody in particular: what is wrong has been said where it is started."""
    with suppress(ServeError):
        await engine.ready()
