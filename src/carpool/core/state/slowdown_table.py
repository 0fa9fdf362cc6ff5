"""A bounded table of iteration times: of each kind of jobs alone, and with co-runners of each other kind.

A figure is shown for days, so no single observation may make one.  The mean is over a minute of device time or more; it
counts only after some seconds; an observation far from it (a checkpoint being written, a process that was stopped) is
pulled towards it; and what has not been measured for a week counts no more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from carpool.core.model import Micros
from carpool.core.stats import PPM

ALONE = ""  # beside no other job
MOST_PAIRS = 2000  # the ones that were measured last are kept
KEPT_ITERATIONS = 64  # the mean is worth so many iterations, or ...
KEPT_US = 60_000_000  # ... as many as take so long, whichever is more; what was before counts less and less
ENOUGH_ITERATIONS = 8  # a figure counts from so many on that ...
ENOUGH_US = 5_000_000  # ... have taken so long together
FAR = 2  # an observation counts as so many times the mean at most, and as that part of it at least
FRESH_US = 7 * 24 * 3600 * 1_000_000  # a figure counts for so long after it has been measured last

#: Model of the device and how it is shared, kind of the job, kind beside it
Pair = tuple[str, str, str]


@dataclass(slots=True)
class Pace:
    """A running mean, kept as a sum: means that are rounded at every step would drift."""

    total_us: Micros = 0
    iterations: int = 0
    measured_us: Micros = 0  # when, last

    def counts(self, now: Micros) -> bool:
        """Whether the mean may be shown: enough has been measured, and lately."""
        return self.enough and now - self.measured_us <= FRESH_US

    @property
    def enough(self) -> bool:
        """Whether enough iterations, over enough time, are in the mean."""
        return self.iterations >= ENOUGH_ITERATIONS and self.total_us >= ENOUGH_US

    def add(self, total_us: Micros, iterations: int) -> None:
        """Add iterations that took ``total_us``.  Another one may have begun before, or goes on."""
        if self.enough:
            least = self.total_us * max(0, iterations - 1) // self.iterations // FAR
            total_us = min(max(total_us, least), self.total_us * (iterations + 1) // self.iterations * FAR)
        self._weigh(self.total_us + total_us, self.iterations + iterations)

    def _weigh(self, total_us: Micros, iterations: int) -> None:
        """Set the mean, worth no more iterations than it may be."""
        most = max(KEPT_ITERATIONS, iterations * KEPT_US // total_us) if total_us else KEPT_ITERATIONS
        if iterations > most:
            total_us, iterations = total_us * most // iterations, most
        self.total_us, self.iterations = total_us, iterations


class SlowdownTable:
    """`Pair` -> `Pace`, in the order in which they were measured last."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[Pair, Pace] = OrderedDict()

    def add(self, pair: Pair, total_us: Micros, iterations: int, now: Micros) -> None:
        """Record how long iterations of jobs of one kind took beside one of the other, on such devices."""
        if pair not in self._pairs:
            self._pairs[pair] = Pace()
        pace = self._pairs[pair]
        pace.add(total_us, iterations)
        pace.measured_us = now
        self._pairs.move_to_end(pair)
        if len(self._pairs) > MOST_PAIRS:
            self._pairs.popitem(last=False)

    def known(self, pair: Pair, total_us: Micros, iterations: int, measured_us: Micros) -> None:
        """Take over a figure of an earlier table, in the place of what is here."""
        self._pairs.pop(pair, None)
        self.add(pair, total_us, iterations, measured_us)

    def slowdown_ppm(self, pair: Pair, now: Micros) -> int | None:
        """An iteration's time beside the other kind over its time alone; None: one of them is not known."""
        there = self._pairs.get(pair)
        if there is None or not there.counts(now):
            return None
        alone = self._pairs.get((pair[0], pair[1], ALONE))
        if alone is None or not alone.counts(now):
            return None
        return there.total_us * alone.iterations * PPM // (there.iterations * alone.total_us)

    def rows(self) -> Iterator[tuple[Pair, Pace]]:
        """Return all figures, the one measured last first."""
        return reversed(self._pairs.items())
