"""A dispatcher for every environment that a model is served in, with workers of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from carpool.serve.metrics import Metrics
from carpool.serve.pool.environment_key import Environment
from carpool.serve.pool.pool import Pool
from carpool.serve.queue.batching import Order
from carpool.serve.queue.dispatcher import Dispatcher


class Dispatchers:
    """The dispatchers that are in use, each with a pool of workers of its own."""

    def __init__(self, new_pool: Callable[[Environment], Pool], metrics: Metrics, order: Order) -> None:
        self._new_pool = new_pool
        self._metrics = metrics
        self._order = order
        self._dispatchers: dict[Environment, Dispatcher] = {}
        self._users: Counter[Environment] = Counter()

    @asynccontextmanager
    async def of(self, environment: Environment) -> AsyncIterator[Dispatcher]:
        """That of an environment.  The first block that uses it starts its workers, the last one ends them."""
        if environment not in self._dispatchers:
            self._dispatchers[environment] = Dispatcher(self._new_pool(environment), self._metrics, self._order)
        self._users[environment] += 1
        try:
            yield self._dispatchers[environment]
        finally:
            self._users[environment] -= 1
            if not self._users[environment]:
                del self._users[environment]
                await self._dispatchers.pop(environment).close()

    def troubles(self) -> Sequence[str]:
        """Why workers cannot be started, where there are none."""
        pools = [each.pool for each in self._dispatchers.values()]
        return [pool.trouble for pool in pools if pool.out_of_service]

    def waiting(self) -> Mapping[str, int]:
        """Requests, by the keys of models."""
        return {key: number for each in self._dispatchers.values() for key, number in each.waiting().items()}

    def workers(self) -> Mapping[str, int]:
        """Processes by state."""
        return sum((each.pool.states() for each in self._dispatchers.values()), Counter[str]())
