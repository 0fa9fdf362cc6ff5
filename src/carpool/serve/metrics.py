"""The endpoint's counters, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

from carpool.protocol.metrics import new_registry, page_of
from carpool.serve.oip.errors import DeadlineMissed
from carpool.serve.recent_figures import RecentFigures

#: Upper bounds of the histogram of latencies, in seconds.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts requests with a result by model, other requests by model and kind of error, and computations."""

    def __init__(self) -> None:
        self.recent = RecentFigures()
        self._registry = new_registry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"carpool_{name}", about, labels, registry=self._registry)

        self._errors = counter("request_errors", "Requests for inference without a result.", "model", "kind")
        self._batches = counter("batches", "Batches computed.", "model")
        self._rows = counter("batch_rows", "Rows in batches computed.", "model")
        self._copied = counter("copied_bytes", "Bytes of weights copied to the device.", "model")
        self._retries = counter("retries", "Requests computed again.", "model")
        self._waiting = Gauge(
            "carpool_queue_length", "Requests that wait to be computed.", ("model",), registry=self._registry
        )
        self._workers = Gauge("carpool_workers", "Worker processes.", ("state",), registry=self._registry)
        self._seconds = Histogram(
            "carpool_request_seconds",
            "From the head of a request for inference to its result.",
            ("model",),
            buckets=BOUNDS_S,
            registry=self._registry,
        )

    def answered(self, model: str, seconds: float) -> None:
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
        return page_of(self._registry, accept)
