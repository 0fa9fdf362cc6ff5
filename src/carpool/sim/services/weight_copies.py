"""The copying of weights to a device: one copy after another, in groups, behind which computing can begin.

A model's groups are alike: each has as many bytes, and computes for as long.  Then the recurrence of
`serve.plan.grouping`, in which a group computes when it is there and the one before has computed, has a closed form
(`finish_us`).
"""

from __future__ import annotations

from typing import NamedTuple

from carpool.core.model import Micros


class Arrival(NamedTuple):
    """Weights that are being copied, or are there."""

    groups: int
    first_us: Micros  # when the first group is there
    there_us: Micros  # when all groups are there


def finish_us(arrival: Arrival, begin_us: Micros, compute_us: Micros) -> Micros:
    """Return when a batch is done that begins to compute at ``begin_us``.

    With c the computing of one of G groups, group k there at t(k), and f(k) its end: f(k) = max(f(k-1), t(k)) + c and
    f(0) = begin.  So f(G) is the largest of begin + Gc and all t(k) + (G - k + 1)c; t(k) is linear in k, so of the
    latter the first or the last.
    """
    last_us = -(-compute_us // arrival.groups)
    return max(begin_us + compute_us, arrival.first_us + compute_us, arrival.there_us + last_us)


class WeightCopies:
    """The copies to one device.

    ``rate``: bytes per microsecond, 0: a copy takes only the fixed time of its transfers.
    """

    def __init__(self, rate: int, group: int, transfer_us: Micros) -> None:
        self._rate = rate
        self._group = group
        self._transfer_us = transfer_us
        self._free_us: Micros = 0  # when all copies that have begun are done
        self._there: dict[str, tuple[Arrival, int]] = {}  # with their bytes
        self.resident = 0  # bytes

    def __contains__(self, key: str) -> bool:
        return key in self._there

    def copy_us(self, size: int) -> Micros:
        """Return how long a whole copy takes."""
        return -(-size // self._group) * self._transfer_us + self._bytes_us(size)

    def place(self, key: str, size: int, now: Micros) -> bool:
        """Begin to copy weights; return False if they are there already, or being copied."""
        if key in self._there:
            return False
        begin, groups = max(now, self._free_us), max(1, -(-size // self._group))
        first = begin + self.copy_us(-(-size // groups))
        self._free_us = begin + self.copy_us(size)
        self._there[key] = (Arrival(groups, first, self._free_us), size)
        self.resident += size
        return True

    def drop(self, key: str) -> None:
        _, size = self._there.pop(key)
        self.resident -= size

    def arrival(self, key: str) -> Arrival:
        return self._there[key][0]

    def _bytes_us(self, size: int) -> Micros:
        return -(-size // self._rate) if self._rate else 0
