"""Turns of one lane in bins of equal length: at most one span begins in each."""

from __future__ import annotations

from collections.abc import Iterable

from carpool.core.model import JobId, Micros
from carpool.daemon.journal.turn_blocks import TurnSpan


class LaneBins:
    """Takes the turns of a lane in the order in which they were recorded; keeps one span for each bin.

    A turn that begins before the end of an earlier one was recorded after the clock had been set back: it counts, and
    what was recorded before of that time is dropped; a bin over that moment keeps its number of turns.
    """

    def __init__(self, since_us: Micros, width_us: Micros, until_us: Micros | None = None) -> None:
        """Turns outside of ``since_us`` and ``until_us`` are left out; a turn over either end is counted whole."""
        self._since_us = since_us
        self._width_us = width_us
        self._until_us = until_us
        self._bins: list[_Bin] = []
        self._end_us: Micros = 0

    def add(self, spans: Iterable[TurnSpan]) -> None:
        since, width, until = self._since_us, self._width_us, self._until_us
        for span in spans:
            begin = span.begin_us
            if (begin < since and span.end_us <= since) or (until is not None and begin >= until):
                continue
            if begin < self._end_us:
                self._cut(begin)
            number = max(0, begin - since) // width
            if self._bins and self._bins[-1].number == number:
                self._bins[-1].merge(span)
            else:
                self._bins.append(_Bin(number, span))
            self._end_us = span.end_us

    def spans(self) -> list[TurnSpan]:
        """Return the spans in order; they do not overlap."""
        return [found.whole() for found in self._bins]

    def _cut(self, at_us: Micros) -> None:
        while self._bins and self._bins[-1].span.begin_us >= at_us:
            self._bins.pop()
        if self._bins and self._bins[-1].span.end_us > at_us:
            self._bins[-1].end(at_us)


class _Bin:
    """``span``: all its turns, with the job of the first; ``_shares``: time by job, once there are several turns."""

    __slots__ = ("_shares", "number", "span")

    def __init__(self, number: int, span: TurnSpan) -> None:
        self.number = number
        self.span = span
        self._shares: dict[JobId, Micros] | None = None

    def merge(self, later: TurnSpan) -> None:
        begin, _, job, turns, _, busy = self.span
        if self._shares is None:
            self._shares = {job: busy}
        self._shares[later.job] = self._shares.get(later.job, 0) + later.busy_us
        self.span = TurnSpan(begin, later.end_us, job, turns + later.turns, later.cause, busy + later.busy_us)

    def end(self, at_us: Micros) -> None:
        """Drop what is after that moment."""
        busy = min(self.span.busy_us, at_us - self.span.begin_us)
        self.span = self.span._replace(end_us=at_us, busy_us=busy)

    def whole(self) -> TurnSpan:
        if self._shares is None:
            return self.span
        return self.span._replace(job=max(self._shares, key=self._shares.__getitem__))
