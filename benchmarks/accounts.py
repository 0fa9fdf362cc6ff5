"""How much device time each job had had when: asked of a running daemon again and again."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

from carpool.protocol.client import ClientError, DaemonClient

INTERVAL_S = 0.1


class Accounts:
    """A context manager; a thread with a client of its own asks."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._seen: dict[int, list[tuple[float, int]]] = defaultdict(list)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def between(self, job: int, begin: float, end: float) -> float:
        """Microseconds of device time between two moments of the machine's monotonic clock."""
        return self._at(job, end) - self._at(job, begin)

    def _watch(self) -> None:
        with DaemonClient(self._home) as client:
            while not self._over.wait(INTERVAL_S):
                try:
                    jobs = client.jobs()
                except ClientError:  # it is stopping
                    return
                now = time.monotonic()
                for job in jobs:
                    self._seen[job.id].append((now, job.device_us))

    def _at(self, job: int, moment: float) -> float:
        """Between two looks in proportion."""
        seen = self._seen[job]
        place = bisect_left(seen, (moment, 0))
        if place == 0 or place == len(seen):
            return float(seen[min(place, len(seen) - 1)][1])
        (before, had), (after, has) = seen[place - 1 : place + 1]
        return had + (has - had) * (moment - before) / (after - before)
