"""Figures of engines: what an answer shows of its tokens as it passes, for Prometheus and for the last minute."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from carpool.core.stats import PPM, quantile
from carpool.protocol.engines import ENDING, OFF, READY, STARTING
from carpool.serve.engines.engine import Engine

MINUTE_S = 60.0
MOST_ANSWERS = 2000  # kept for the last minute, of each engine
#: Upper bounds in seconds: of the time to the first token, and of the time per token.
FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
EVENT_STREAM = "text/event-stream"
_EVENT_ENDS = re.compile(rb"\r?\n\r?\n")
_COUNTED = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')
_DONE = b"data: [DONE]"
_TAIL = 4096  # bytes: the end of an answer has its usage


class Answer:
    """The figures of one answer while it passes: an event of a stream is taken for a token, unless usage is given."""

    def __init__(self, media: str, begin_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begin_s = begin_s
        self._first_s: float | None = None
        self._last_s = begin_s
        self._events = 0
        self._tail = b""
        self.streams = media == EVENT_STREAM

    def passes(self, piece: bytes) -> None:
        """Note the next bytes."""
        self._last_s = self._clock()
        if self._first_s is None:
            self._first_s = self._last_s
        if self.streams:
            begun = self._tail[-3:]  # an event's end may lie in two pieces
            self._events += len(_EVENT_ENDS.findall(begun + piece)) - len(_EVENT_ENDS.findall(begun))
        self._tail = (self._tail + piece)[-_TAIL:]

    @property
    def first_token_s(self) -> float | None:
        """The time to the first token of a stream; None: there was none."""
        return None if self._first_s is None or not self.streams else self._first_s - self._begin_s

    @property
    def tokens(self) -> int:
        """The number of tokens, as far as the answer shows it."""
        counted = _COUNTED.findall(self._tail)
        return int(counted[-1]) if counted else max(0, self._events - (_DONE in self._tail))

    @property
    def token_s(self) -> float | None:
        """The time between two tokens of a stream; None: it has fewer than two."""
        if self._first_s is None or not self.streams or self.tokens < 2:
            return None
        return (self._last_s - self._first_s) / (self.tokens - 1)


class EngineFigures:
    """Counts requests and tokens by engine.  ``clock``: seconds, never decreasing."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: dict[str, deque[tuple[float, int, float | None]]] = {}

        def histogram(name: str, about: str, bounds: tuple[float, ...]) -> Histogram:
            return Histogram(f"carpool_engine_{name}", about, ("engine",), buckets=bounds, registry=registry)

        self._requests = Counter(
            "carpool_engine_requests", "Requests to engines, by result.", ("engine", "result"), registry=registry
        )
        self._tokens = Counter("carpool_engine_tokens", "Tokens in answers of engines.", ("engine",), registry=registry)
        self._first = histogram("first_token_seconds", "From a request to the first token of its stream.", FIRST_S)
        self._each = histogram("token_seconds", "Time between tokens of a stream.", TOKEN_S)
        self._flying = Gauge("carpool_engine_in_flight", "Requests in flight.", ("engine",), registry=registry)
        self._starts = Gauge("carpool_engine_starts", "Starts of the process.", ("engine",), registry=registry)
        self._state = Gauge(
            "carpool_engine_state", "1 for the state that an engine has.", ("engine", "state"), registry=registry
        )

    def answer(self, media: str, begin_s: float) -> Answer:
        """Return the figures of an answer that begins.  ``begin_s``: when its request came."""
        return Answer(media, begin_s, self._clock)

    def now(self) -> float:
        """Return the clock's time."""
        return self._clock()

    def ended(self, engine: str, result: str, answer: Answer | None = None) -> None:
        """Count a request that has ended.  ``result``: a status, or a kind of error."""
        self._requests.labels(engine, result).inc()
        if answer is None:
            return
        self._tokens.labels(engine).inc(answer.tokens)
        if answer.first_token_s is not None:
            self._first.labels(engine).observe(answer.first_token_s)
        if answer.token_s is not None:
            self._each.labels(engine).observe(answer.token_s)
        recent = self._recent.setdefault(engine, deque(maxlen=MOST_ANSWERS))
        recent.append((self._clock(), answer.tokens, answer.first_token_s))

    def last_minute(self, engine: str) -> tuple[int | None, float]:
        """Return the median time to the first token, in microseconds, and tokens per second."""
        recent, since = self._recent.get(engine, deque()), self._clock() - MINUTE_S
        while recent and recent[0][0] < since:
            recent.popleft()
        firsts = [round(first * 1e6) for _, _, first in recent if first is not None]
        tokens = sum(tokens for _, tokens, _ in recent)
        return (quantile(firsts, PPM // 2) if firsts else None), round(tokens / MINUTE_S, 2)

    def watch(self, engine: Engine) -> None:
        """Show the requests, starts and states of an engine from now on."""
        self._flying.labels(engine.name).set_function(lambda: engine.in_flight)
        self._starts.labels(engine.name).set_function(lambda: engine.starts)
        for state in (OFF, STARTING, READY, ENDING):
            self._state.labels(engine.name, state).set_function(partial(_is_in, engine, state))

    def forget(self, engine: Engine) -> None:
        """Show an engine no longer; its counters stay."""
        for gauge in (self._flying, self._starts):
            gauge.remove(engine.name)
        for state in (OFF, STARTING, READY, ENDING):
            self._state.remove(engine.name, state)


def _is_in(engine: Engine, state: str) -> float:
    return float(engine.state == state)
