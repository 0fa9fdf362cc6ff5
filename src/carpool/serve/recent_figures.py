"""The results of requests in the last minute, by model: a bounded memory of counts per second, and of times."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from carpool.core.stats import PPM, quantile
from carpool.protocol.models import LARGEST_FIGURE, ModelFigures

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
        now = int(self._clock())
        recent = self._recent(model)
        recent.at(now).answered += 1
        recent.times.append((now, took_us))

    def missed(self, model: str) -> None:
        self._recent(model).at(int(self._clock())).missed += 1

    def copied(self, model: str, size: int) -> None:
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
