"""What the endpoint counts, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

#: Upper bounds of the histogram of latencies, in seconds.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MEDIA = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Requests that got a result, by model; all others by model and the kind of their error; what was computed."""

    def __init__(self) -> None:
        self._errors: Counter[tuple[str, str]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._batches: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._copied: Counter[str] = Counter()
        self._retries: Counter[str] = Counter()

    def answered(self, model: str, seconds: float) -> None:
        self._buckets.setdefault(model, [0] * (len(BOUNDS_S) + 1))[bisect_left(BOUNDS_S, seconds)] += 1
        self._seconds[model] += seconds

    def failed(self, model: str, kind: str) -> None:
        """``model`` is empty for a name that no model has: names that clients make up must not fill the memory."""
        self._errors[model, kind] += 1

    def computed(self, model: str, rows: int, copied_bytes: int) -> None:
        """A batch was, for which so much of the weights came to the device."""
        self._batches[model] += 1
        self._rows[model] += rows
        self._copied[model] += copied_bytes

    def retried(self, model: str) -> None:
        """A request was computed in vain, and is going to be computed once more."""
        self._retries[model] += 1

    def text(self, waiting: Mapping[str, int], workers: Mapping[str, int]) -> str:
        """``waiting``: requests in the queue of each model; ``workers``: processes by state."""
        return "".join(f"{line}\n" for line in self._lines(waiting, workers))

    def _lines(self, waiting: Mapping[str, int], workers: Mapping[str, int]) -> Iterator[str]:
        yield "# HELP carpool_request_errors_total Requests for inference without a result."
        yield "# TYPE carpool_request_errors_total counter"
        for (model, kind), count in sorted(self._errors.items()):
            yield f"carpool_request_errors_total{{{_labels(model=model, kind=kind)}}} {count}"
        yield from _values("carpool_queue_length", "gauge", "Requests that wait to be computed.", "model", waiting)
        yield from _values("carpool_workers", "gauge", "Worker processes.", "state", workers)
        yield from _values("carpool_batches_total", "counter", "Batches computed.", "model", self._batches)
        yield from _values("carpool_batch_rows_total", "counter", "Rows in batches computed.", "model", self._rows)
        about = "Bytes of weights copied to the device."
        yield from _values("carpool_copied_bytes_total", "counter", about, "model", self._copied)
        yield from _values("carpool_retries_total", "counter", "Requests computed again.", "model", self._retries)
        yield "# HELP carpool_request_seconds From the head of a request for inference to its result."
        yield "# TYPE carpool_request_seconds histogram"
        for model, buckets in sorted(self._buckets.items()):
            yield from self._histogram(model, buckets)

    def _histogram(self, model: str, buckets: list[int]) -> Iterator[str]:
        total = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), buckets, strict=True):
            total += count
            yield f"carpool_request_seconds_bucket{{{_labels(model=model, le=bound)}}} {total}"
        yield f"carpool_request_seconds_sum{{{_labels(model=model)}}} {self._seconds[model]:.6f}"
        yield f"carpool_request_seconds_count{{{_labels(model=model)}}} {total}"


def _values(name: str, kind: str, about: str, label: str, values: Mapping[str, int]) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for key, value in sorted(values.items()):
        yield f"{name}{{{_labels(**{label: key})}}} {value}"


def _labels(**values: str) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
