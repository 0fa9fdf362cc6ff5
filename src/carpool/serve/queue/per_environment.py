"""Dispatchers, one for every environment that a model is served in, each with workers of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from carpool.serve.metrics import Metrics
from carpool.serve.plan.manifest import SourceFile
from carpool.serve.pool.launcher import Environment
from carpool.serve.pool.pool import Pool
from carpool.serve.queue.batching import Order
from carpool.serve.queue.dispatcher import Dispatcher, Running


class _Used:
    """A dispatcher, its number of models, and the code of all models it has had: no process forgets its imports."""

    def __init__(self, environment: Environment, dispatcher: Dispatcher) -> None:
        self.environment = environment
        self.dispatcher = dispatcher
        self.models = 0
        self._code: dict[str, str] = {}

    def takes(self, environment: Environment, code: Sequence[SourceFile]) -> bool:
        same = all(self._code.get(file.path, file.digest) == file.digest for file in code)
        return self.environment == environment and same

    def add(self, code: Sequence[SourceFile]) -> None:
        self.models += 1
        self._code.update((file.path, file.digest) for file in code)


class Dispatchers:
    """The dispatchers that are in use, each with a pool of workers of its own."""

    def __init__(self, new_pool: Callable[[Environment], Pool], metrics: Metrics, order: Order) -> None:
        self._new_pool = new_pool
        self._metrics = metrics
        self._order = order
        self._used: list[_Used] = []
        self._running = Running()

    @asynccontextmanager
    async def of(self, environment: Environment, code: Sequence[SourceFile] = ()) -> AsyncIterator[Dispatcher]:
        """Yield a dispatcher of an environment, whose workers have imported no other forms of the files of ``code``.

        The first block that uses it starts its workers, the last one ends them.
        """
        used = next((each for each in reversed(self._used) if each.takes(environment, code)), None)
        if used is None:
            pool = self._new_pool(environment)
            used = _Used(environment, Dispatcher(pool, self._metrics, self._order, running=self._running))
            self._used.append(used)
        used.add(code)
        try:
            yield used.dispatcher
        finally:
            used.models -= 1
            if not used.models:
                self._used.remove(used)
                await used.dispatcher.close()

    def troubles(self) -> Sequence[str]:
        """Return why workers cannot be started, where there are none."""
        pools = [each.dispatcher.pool for each in self._used]
        return [pool.trouble for pool in pools if pool.out_of_service]

    def degraded(self) -> Sequence[str]:
        """Return why fewer workers than intended can compute."""
        return [why for each in self._used if (why := each.dispatcher.pool.degraded)]

    def waiting(self) -> Mapping[str, int]:
        """Return the number of waiting requests, by the keys of models."""
        return {key: number for each in self._used for key, number in each.dispatcher.waiting().items()}

    def workers(self) -> Mapping[str, int]:
        """Return the number of processes by state."""
        return sum((each.dispatcher.pool.states() for each in self._used), Counter[str]())
