"""The endpoint's counters, for Prometheus, and the figures of the last minute, by model, in bounded memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client import Counter, Gauge, Histogram

from carpool.core.stats import PPM, quantile
from carpool.protocol.metrics import new_registry, page_of
from carpool.protocol.models import LARGEST_FIGURE, ModelFigures
from carpool.serve.oip.errors import DeadlineMissed

#: Upper bounds of the histogram of latencies, in seconds.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts requests with a result by model, other requests by model and kind of error, and computations."""

    def __init__(self) -> None:
        self.recent = RecentFigures()
        self.registry = new_registry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"carpool_{name}", about, labels, registry=self.registry)

        self._errors = counter("request_errors", "Requests for inference without a result.", "model", "kind")
        self._batches = counter("batches", "Batches computed.", "model")
        self._rows = counter("batch_rows", "Rows in batches computed.", "model")
        self._copied = counter("copied_bytes", "Bytes of weights copied to the device.", "model")
        self._retries = counter("retries", "Requests computed again.", "model")
        self._waiting = Gauge(
            "carpool_queue_length", "Requests that wait to be computed.", ("model",), registry=self.registry
        )
        self._workers = Gauge("carpool_workers", "Worker processes.", ("state",), registry=self.registry)
        self._seconds = Histogram(
            "carpool_request_seconds",
            "From the head of a request for inference to its result.",
            ("model",),
            buckets=BOUNDS_S,
            registry=self.registry,
        )

    def answered(self, model: str, seconds: float) -> None:
        """Count a request with a result, and its time."""
        self._seconds.labels(model).observe(seconds)
        self.recent.answered(model, round(seconds * 1_000_000))

    def failed(self, model: str, kind: str) -> None:
        """Count a failed request.

        ``model`` is empty for an unknown name: names that clients invent must not fill the memory.
        """
        self._errors.labels(model, kind).inc()
        if model and kind == DeadlineMissed.kind:
            self.recent.missed(model)

    def computed(self, model: str, rows: int, copied_bytes: int) -> None:
        """Count a computed batch, for which ``copied_bytes`` of weights were copied to the device."""
        self._batches.labels(model).inc()
        self._rows.labels(model).inc(rows)
        self._copied.labels(model).inc(copied_bytes)
        self.recent.copied(model, copied_bytes)

    def retried(self, model: str) -> None:
        """Count a request whose computation failed and is repeated once."""
        self._retries.labels(model).inc()

    def page(self, waiting: Mapping[str, int], workers: Mapping[str, int], accept: str = "") -> tuple[bytes, str]:
        """Return the text and its media type, in the format that the reader prefers.

        ``waiting``: requests in the queue of each model; ``workers``: processes by state.
        """
        for gauge, values in ((self._waiting, waiting), (self._workers, workers)):
            gauge.clear()
            for label, value in values.items():
                gauge.labels(label).set(value)
        return page_of(self.registry, accept)


MINUTE_S = 60
#: Most times that are kept per model: with more requests in a minute, the latest answers.
MOST_TIMES = 2000
MOST_MODELS = 1000


@dataclass(slots=True)
class _Second:
    """Counts of one second."""

    at: int
    answered: int = 0
    missed: int = 0
    copied: int = 0


@dataclass(slots=True)
class _Recent:
    seconds: deque[_Second] = field(default_factory=deque)
    times: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))  # second, microseconds

    def at(self, now: int) -> _Second:
        """Return the counts of this second, and forget those older than a minute."""
        if not self.seconds or self.seconds[-1].at != now:
            self.seconds.append(_Second(now))
        self.forget(now)
        return self.seconds[-1]

    def forget(self, now: int) -> None:
        for kept in (self.seconds, self.times):
            while kept and (kept[0].at if isinstance(kept[0], _Second) else kept[0][0]) <= now - MINUTE_S:
                kept.popleft()


class RecentFigures:
    """The figures of all models.  ``clock``: seconds, never decreasing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._models: dict[str, _Recent] = {}

    def answered(self, model: str, took_us: int) -> None:
        """Note an answer, and how long it took."""
        now = int(self._clock())
        recent = self._recent(model)
        recent.at(now).answered += 1
        recent.times.append((now, took_us))

    def missed(self, model: str) -> None:
        """Note a missed deadline."""
        self._recent(model).at(int(self._clock())).missed += 1

    def copied(self, model: str, size: int) -> None:
        """Note bytes of weights that were copied."""
        self._recent(model).at(int(self._clock())).copied += size

    def of(self, model: str, waiting: int) -> ModelFigures:
        """Return a model's figures.  ``waiting``: requests, now.

        A front younger than a minute averages over its age.
        """
        recent, now = self._models.get(model, _Recent()), self._clock()
        recent.forget(int(now))
        over_s = min(MINUTE_S, max(1.0, now - self._since))
        times = [took for _, took in recent.times]
        return ModelFigures(
            round(sum(each.answered for each in recent.seconds) / over_s, 2),
            quantile(times, PPM // 2) if times else None,
            quantile(times, PPM // 100 * 99) if times else None,
            sum(each.missed for each in recent.seconds),
            waiting,
            min(LARGEST_FIGURE, sum(each.copied for each in recent.seconds)),
        )

    def _recent(self, model: str) -> _Recent:
        """Return a model's record; models without news for longest are forgotten."""
        recent = self._models.pop(model, None) or _Recent()
        self._models[model] = recent
        if len(self._models) > MOST_MODELS:
            del self._models[next(iter(self._models))]
        return recent
