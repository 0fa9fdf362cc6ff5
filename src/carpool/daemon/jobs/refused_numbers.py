"""Job numbers given to submissions that were then refused: no job ever had them."""

from __future__ import annotations

from bisect import bisect_right

from carpool.core.model import JobId


class RefusedNumbers:
    """A set of job numbers, stored as runs.  Numbers mostly arrive in order; one that extends a run takes no memory."""

    def __init__(self) -> None:
        self._first: list[JobId] = []  # of each run, ascending
        self._last: list[JobId] = []

    def add(self, number: JobId) -> None:
        place = bisect_right(self._first, number)
        if place and self._last[place - 1] >= number - 1:
            self._last[place - 1] = max(number, self._last[place - 1])
        else:
            self._first.insert(place, number)
            self._last.insert(place, number)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = bisect_right(self._first, number)
        return place > 0 and number <= self._last[place - 1]
