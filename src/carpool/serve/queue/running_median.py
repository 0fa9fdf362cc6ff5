"""The recent typical duration of something.  Pure: times are integers of microseconds."""

from __future__ import annotations

from collections import deque

from carpool.core.stats import PPM, quantile

#: Age at which values expire: a single slow one must not keep a model from being tried again.
FRESH_US = 2_000_000
MOST = 16


class Recent:
    """The latest values; a few extreme ones do not matter.  The times that are passed in never decrease."""

    def __init__(self) -> None:
        self._values: deque[tuple[int, int]] = deque(maxlen=MOST)

    def add(self, value_us: int, now_us: int) -> None:
        self._values.append((now_us, value_us))

    def typical(self, now_us: int) -> int:
        """Return the median, the lower one of two; 0 if no recent value is known."""
        while self._values and self._values[0][0] < now_us - FRESH_US:
            self._values.popleft()
        return quantile([value for _, value in self._values], PPM // 2) if self._values else 0
