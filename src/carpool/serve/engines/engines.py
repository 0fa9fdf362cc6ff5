"""All engines of a front: by model, from start to end, and as the daemon is told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress

from carpool.core.spelling import did_you_mean
from carpool.protocol.engines import OFF, EngineSpec, EngineState, EngineWishes, model_names
from carpool.protocol.models import LONGEST_REASON
from carpool.serve.engines.engine import Engine, EngineParts
from carpool.serve.engines.figures import EngineFigures
from carpool.serve.oip.errors import ServeError, UnknownModel

log = logging.getLogger(__name__)

REPORT_S = 1.0
CLOSE_S = 40.0  # a process has a grace time of its own after SIGTERM


class Engines:
    """Engines by name and by model: `begin` first, and `close` at the end."""

    def __init__(self, specs: Mapping[str, EngineSpec], parts: EngineParts, figures: EngineFigures) -> None:
        self.figures = figures
        self.session = parts.session
        self._turns = parts.turns
        self._engines = {name: Engine(name, spec, parts) for name, spec in specs.items()}
        self._models = {model: each for each in self._engines.values() for model in model_names(each.name, each.spec)}
        for engine in self._engines.values():
            figures.watch(engine)
        self._tasks: set[asyncio.Task[object]] = set()

    def begin(self) -> None:
        """Start what is to be started at once."""
        self._spawn(self._turns.watch())
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

    def states(self, url: str) -> dict[str, EngineState]:
        """Return what is reported of each engine.  ``url``: the front's."""
        return {engine.name: self._state(engine, url) for engine in self._engines.values()}

    def heed(self, wishes: EngineWishes) -> None:
        """Do what users have asked of engines."""
        for name, wish in wishes.engines.items():
            if (engine := self._engines.get(name)) is not None:
                self._spawn(_ready(engine) if wish == "start" else engine.stop())

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

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _ready(engine: Engine) -> None:
    """Start an engine for nobody in particular: what is wrong has been said where it is started."""
    with suppress(ServeError):
        await engine.ready()
