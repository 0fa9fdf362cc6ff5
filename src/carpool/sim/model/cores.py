"""The cores of a machine: how much single-threaded jobs get done on them together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from carpool.sim.model.trace_job import WHOLE_PPM

Point = tuple[int, int]  # number of busy jobs; their speed together, S(n), in millionths of the speed of one alone


@dataclass(frozen=True, slots=True)
class Cores:
    """A curve S(n), by number of jobs; between two points it is a line, beyond the last one it does not rise.

    ``measured``: the day on which `carpool calibrate` has measured it, as in 2026-12-01; empty: it is assumed.
    """

    points: tuple[Point, ...]
    measured: str = ""

    @property
    def count(self) -> int:
        """The number of cores."""
        return self.points[-1][0]

    def speed_ppm(self, demand_ppm: int) -> int:
        """Return the speed of each job, in millionths of its speed alone; ``demand_ppm``: cores that all demand."""
        if demand_ppm <= WHOLE_PPM:
            return WHOLE_PPM
        after = bisect_left(self.points, demand_ppm, key=lambda point: point[0] * WHOLE_PPM)
        if after == len(self.points):
            return max(1, self.points[-1][1] * WHOLE_PPM // demand_ppm)
        (low, slow), (high, fast) = self.points[after - 1], self.points[after]
        together = slow + (fast - slow) * (demand_ppm - low * WHOLE_PPM) // ((high - low) * WHOLE_PPM)
        return together * WHOLE_PPM // demand_ppm


def check_cores(cores: Cores) -> None:
    """Check that more jobs never get less done together, nor more each.  Raises ValueError, for people."""
    if not cores.points or cores.points[0] != (1, WHOLE_PPM):
        raise ValueError("the speed of one job alone must be 1")
    for (few, slow), (many, fast) in pairwise(cores.points):
        if many <= few:
            raise ValueError(f"the speed of {many} jobs follows that of {few}; order them by number")
        if fast < slow:
            raise ValueError(f"S({many}) is {_text(fast)}, less than S({few}); more jobs get no less done together")
        if fast * few > slow * many:
            most = _text(slow * many // few)
            raise ValueError(f"S({many}) is {_text(fast)}; it must be at most {most}, or each job would be faster")


def levelled(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return measured points, by number, without what only noise makes of them: see `check_cores`."""
    found = [(1, WHOLE_PPM)]
    for count, speed in points:
        few, slow = found[-1]
        if count > few:
            found.append((count, min(max(speed, slow), slow * count // few)))
    return tuple(found)


def parse_cores(text: str) -> Cores:
    """Parse a number of cores, alone or with what 2, 3 ... jobs get done on them.  Raises ValueError, for people.

    >>> parse_cores("2:1.8")
    Cores(points=((1, 1000000), (2, 1800000)), measured='')
    >>> parse_cores("8").points
    ((1, 1000000), (8, 8000000))
    """
    number, colon, rest = text.partition(":")
    if not number.isdecimal() or int(number) < 1:
        raise ValueError(f"{text!r} begins with no number of cores; write as in 4 or 2:1.8")
    count = int(number)
    speeds = tuple(map(_speed, rest.split(","))) if colon else (count * WHOLE_PPM,) * (count > 1)
    if colon and len(speeds) != count - 1:
        raise ValueError(f"{text!r} has {len(speeds)} speeds; {count} cores need those of 2 to {count} jobs")
    numbers = range(2, count + 1) if colon else (count,)
    cores = Cores(((1, WHOLE_PPM), *zip(numbers, speeds, strict=False)))
    check_cores(cores)
    return cores


def _speed(text: str) -> int:
    try:
        speed = round(float(text) * WHOLE_PPM)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a speed; write as in 1.8") from None
    return speed


def _text(speed_ppm: int) -> str:
    return f"{speed_ppm / WHOLE_PPM:g}"
