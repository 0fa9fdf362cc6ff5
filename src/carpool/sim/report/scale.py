"""Time on an axis, in the most readable unit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from carpool.core.model import Micros

_DIGITS = 6
_MOST = 200  # most of a unit before the next larger unit is used


class Scale(NamedTuple):
    """A unit of time."""

    unit: str
    us: Micros

    def of(self, time_us: Micros) -> float:
        return round(time_us / self.us, _DIGITS)

    def all(self, times_us: Iterable[Micros]) -> list[float]:
        return [self.of(time) for time in times_us]


_SCALES = (
    Scale("ms", 1_000),
    Scale("s", 1_000_000),
    Scale("min", 60_000_000),
    Scale("h", 3_600_000_000),
    Scale("d", 86_400_000_000),
)


def scale_for(longest_us: Micros) -> Scale:
    """Return the smallest unit in which the longest time is not a large number."""
    return next((scale for scale in _SCALES if longest_us <= _MOST * scale.us), _SCALES[-1])
