"""The wait of requests for an absent daemon: without it, workers may get no turn and none can be started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from carpool.serve.oip.errors import DaemonAway, DeadlineMissed

RETRY_AFTER_S = 5


class DaemonPresence:
    """The presence of the daemon; code that asks the daemon reports `is_here` or `is_away`."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._away = False
        self._waiting: set[asyncio.Timeout] = set()

    def is_here(self) -> None:
        """Note that the daemon has answered."""
        self._away = False
        self._reschedule()

    def is_away(self) -> None:
        """Note that the daemon has not answered."""
        if not self._away:
            self._away = True
            self._reschedule()

    @asynccontextmanager
    async def awaited(self, *, has_deadline: bool) -> AsyncIterator[None]:
        """Wait inside this context for an absent daemon.

        The request waits until its deadline if it has one, otherwise for the patience.  Raises DaemonAway.
        """
        try:
            async with asyncio.timeout_at(None if has_deadline else self._until()) as limit:
                if not has_deadline:
                    self._waiting.add(limit)
                try:
                    yield
                finally:
                    self._waiting.discard(limit)
        except TimeoutError:
            raise self._error(f"has been away for {self._patience_s:g} s") from None
        except DeadlineMissed:
            if self._away:
                raise self._error("is away, and the deadline has passed") from None
            raise

    def _until(self) -> float | None:
        return asyncio.get_running_loop().time() + self._patience_s if self._away else None

    def _reschedule(self) -> None:
        for limit in self._waiting:
            if not limit.expired():
                limit.reschedule(self._until())

    def _error(self, how: str) -> DaemonAway:
        return DaemonAway(f"Carpool's daemon {how}; it is started by: carpool up", RETRY_AFTER_S)
