"""Virtual time: planned calls, in the order in which they happen."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol

from carpool.core.events import Event
from carpool.core.model import Micros


class Agenda:
    """Planned calls by time; equal times keep the order in which they were planned."""

    def __init__(self) -> None:
        self._heap: list[tuple[Micros, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def plan(self, when: Micros, call: Callable[..., None], *arguments: Any) -> None:
        """Plan a call for a time."""
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, call, arguments))

    def next(self) -> Micros | None:
        """Return the time of the next planned call, or None."""
        return self._heap[0][0] if self._heap else None

    def run(self, now: Micros) -> None:
        """Make all calls planned up to ``now``, including those planned for ``now`` by these calls."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, _, call, arguments = heapq.heappop(heap)
            call(*arguments)


class Driver(Protocol):
    """The interface that modelled jobs need from the driver of the core: the simulator, or a test's daemon."""

    @property
    def now(self) -> Micros:
        """The time, microseconds."""

    @property
    def post(self) -> Callable[[Event], object]:
        """A function that lets the core handle an event, after those that were posted before."""

    def plan(self, when: Micros, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function later, before the core's own timers of that moment."""
