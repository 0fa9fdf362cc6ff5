"""A modelled job's persistent memory in the host store, and the time that moving it takes."""

from __future__ import annotations

from typing import NamedTuple

from carpool.core.model import Micros


class Rates(NamedTuple):
    """Bytes per microsecond; 0: moving takes no time."""

    offload: int
    restore: int


class HostStore:
    """The part of a job's memory in the store, and its counters as `Usage` has them.

    A turn may end before everything is back: the rest stays, and is restored with the next turn.
    """

    __slots__ = ("_rates", "in_bytes", "in_us", "offloads", "out_bytes", "out_us", "stored")

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self.stored = self.offloads = 0
        self.out_bytes = self.in_bytes = 0
        self.out_us: Micros = 0
        self.in_us: Micros = 0

    def leave_us(self, used: int) -> Micros:
        """Return how long offloading takes until all of ``used`` bytes are in the store."""
        return _time(used - self.stored, self._rates.offload)

    def left(self, used: int) -> None:
        """Note that all bytes are in the store."""
        self.out_us += self.leave_us(used)
        self.out_bytes += used - self.stored
        self.stored = used
        self.offloads += 1

    @property
    def return_us(self) -> Micros:
        """How long restoring the rest takes."""
        return _time(self.stored, self._rates.restore)

    def returned(self, elapsed: Micros) -> None:
        """Restore as much as there was time for in a turn of ``elapsed`` microseconds."""
        back = min(self.stored, elapsed * self._rates.restore) if self._rates.restore else self.stored
        self.in_us += min(elapsed, self.return_us)
        self.in_bytes += back
        self.stored -= back


def _time(size: int, rate: int) -> Micros:
    return -(-size // rate) if rate else 0
