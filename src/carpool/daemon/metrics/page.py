"""The page that Prometheus reads, and the daemon's measurements of itself."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carpool.daemon.metrics.event_counts import EventCounts
from carpool.daemon.metrics.present import Now, Present
from carpool.protocol.metrics import new_registry, page_of

#: How late the loop is when a timer is due, in seconds.
LAG_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
LOOK_S = 1.0


class DaemonMetrics:
    """All metrics of the daemon.  ``behind_s``: how long the journal's oldest write has waited."""

    def __init__(self, behind_s: Callable[[], float]) -> None:
        self._registry = new_registry()
        self._present: Present | None = None
        self._one_at_a_time = asyncio.Lock()
        self.events = EventCounts(self._registry)
        self._requests = _Requests()
        self._registry.register(self._requests)
        self._lag = Histogram(
            "carpool_loop_lag_seconds", "How late the daemon's loop is.", buckets=LAG_S, registry=self._registry
        )
        self._registry.register(_JournalLag(behind_s))
        ProcessCollector(registry=self._registry)

    def look_up(self, now: Now) -> None:
        """Add the present state to the page from now on."""
        self._present = Present(now)
        self._registry.register(self._present)

    def answered(self, method: str, route: str, status: int) -> None:
        """Count an answer.  ``route``: an entry of the route table; names made up by clients must not fill memory."""
        self._requests.answered[method, route, str(status)] += 1

    async def page(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its media type, in the format that the reader prefers."""
        async with self._one_at_a_time:
            if self._present is not None:
                await self._present.count_waiting()
        return page_of(self._registry, accept)

    async def run(self) -> None:
        """Measure the loop's lag for as long as the daemon runs."""
        while True:
            due = time.monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self._lag.observe(max(0.0, time.monotonic() - due))


class _Requests(Collector):
    """Counts in a dictionary, which costs less per request than a counter of the library."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, str]] = Counter()

    def collect(self) -> Iterator[Metric]:
        labels = ("method", "route", "status")
        family = CounterMetricFamily("carpool_api_requests", "Answered requests.", labels=labels)
        for request, count in self.answered.items():
            family.add_metric(request, count)
        yield family


class _JournalLag(Collector):
    def __init__(self, behind_s: Callable[[], float]) -> None:
        self._behind_s = behind_s

    def collect(self) -> Iterator[GaugeMetricFamily]:
        about = "How long the oldest write that is not on the disk has waited."
        yield GaugeMetricFamily("carpool_journal_lag_seconds", about, value=self._behind_s())
