"""One heap for everything that shall happen later; equal times keep the order in which they were set."""

from __future__ import annotations

import heapq
from collections.abc import Hashable

from carpool.core.model import Micros

Key = tuple[str, Hashable]


class Timers:
    """Timers by key (kind, subject).  Setting one again replaces it; entries that were replaced are skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[Micros, int, Key]] = []
        self._live: dict[Key, tuple[Micros, int]] = {}
        self._sequence = 0

    def set(self, key: Key, when: Micros) -> None:
        present = self._live.get(key)
        if present is not None and present[0] == when:
            return
        self._sequence += 1
        self._live[key] = (when, self._sequence)
        heapq.heappush(self._heap, (when, self._sequence, key))
        if len(self._heap) > 64 + 4 * len(self._live):
            self._compact()

    def cancel(self, key: Key) -> None:
        self._live.pop(key, None)

    def when(self, key: Key) -> Micros | None:
        """When the timer is due; None if it is not set."""
        present = self._live.get(key)
        return present[0] if present is not None else None

    def next(self) -> Micros | None:
        """When the earliest timer is due; None: none is set."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, now: Micros) -> Key | None:
        """Take the earliest timer that is due; None: none is."""
        due = self.next()
        if due is None or due > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._live[key]
        return key

    def _is_live(self, entry: tuple[Micros, int, Key]) -> bool:
        return self._live.get(entry[2]) == entry[:2]

    def _compact(self) -> None:
        # A turn sets and cancels a timer each time; without this the heap would grow with every turn.
        self._heap = [entry for entry in self._heap if self._is_live(entry)]
        heapq.heapify(self._heap)
