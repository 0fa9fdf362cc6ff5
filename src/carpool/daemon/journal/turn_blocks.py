"""Turns in few bytes, as values of the series of turns, and in bins of equal length."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from carpool.core.model import Cause, JobId, Micros
from carpool.daemon.journal.rows import LARGEST_NUMBER

#: How a turn ended, by its number in the journal: new causes are only ever appended.
UNKNOWN, GOES_ON = 0, 1
CAUSES = ("unknown", "", *(cause.value for cause in Cause), "paused", "left", "failed", "ended")
CODES = {word: code for code, word in enumerate(CAUSES)}

_JOBS = struct.Struct("<H")
_JOB = struct.Struct("<Q")
#: Begin (microseconds after that of the block), length, place of the job in the block's list, how it ended.
_TURN = struct.Struct("<QQHB")
#: The same with the number of turns, and the time in which any job had the turn.
_MERGED = struct.Struct("<QQHBIQ")
TURN_BYTES = _TURN.size
MOST_TURNS = 10_000  # of one block
_LARGEST = _JOBS.size + MOST_TURNS * (_JOB.size + _MERGED.size)
#: What the field for the number of turns holds at most.
_MOST_COUNT = 2**32 - 1


class TurnSpan(NamedTuple):
    """One turn, or ``turns`` of them that lie in one bin.

    ``job``: the one with most time in it; ``cause``: how the last turn ended (an index of `CAUSES`); ``busy_us``: the
    time in which any job had the turn.
    """

    begin_us: Micros
    end_us: Micros
    job: JobId
    turns: int
    cause: int
    busy_us: Micros


class SpoiltBlock(ValueError):
    """The bytes are no block."""


def pack(spans: Iterable[TurnSpan], begin_us: Micros, *, merged: bool) -> bytes:
    """Encode spans, in order; none begins before ``begin_us``.  ``merged``: a span may be more than one turn."""
    places: dict[JobId, int] = {}
    rows = [_row(span, begin_us, places.setdefault(span.job, len(places)), merged) for span in spans]
    jobs = [_JOB.pack(job) for job in places]
    return zlib.compress(b"".join((_JOBS.pack(len(jobs)), *jobs, *rows)), 1)


def _row(span: TurnSpan, begin_us: Micros, place: int, merged: bool) -> bytes:
    turn = (span.begin_us - begin_us, span.end_us - span.begin_us, place, span.cause)
    return _MERGED.pack(*turn, min(span.turns, _MOST_COUNT), span.busy_us) if merged else _TURN.pack(*turn)


def unpack(data: bytes, begin_us: Micros, *, merged: bool) -> list[TurnSpan]:
    """Decode a block.  Raises SpoiltBlock, also for spans that overlap."""
    try:
        plain = _inflated(data)
        (count,) = _JOBS.unpack_from(plain)
        first = _JOBS.size + count * _JOB.size
        jobs = [job for (job,) in _JOB.iter_unpack(plain[_JOBS.size : first])]
        spans = list((_merged if merged else _turns)(plain[first:], begin_us, jobs))
    except (struct.error, zlib.error, IndexError) as error:
        raise SpoiltBlock(str(error)) from None
    _check(spans)
    return spans


def _inflated(data: bytes) -> bytes:
    inflating = zlib.decompressobj()
    plain = inflating.decompress(data, _LARGEST)
    if not inflating.eof or inflating.unused_data:
        raise SpoiltBlock("it does not end where it should")
    return plain


def _turns(rows: bytes, begin_us: Micros, jobs: list[JobId]) -> Iterator[TurnSpan]:
    for offset, length, place, cause in _TURN.iter_unpack(rows):
        begin = begin_us + offset
        yield TurnSpan(begin, begin + length, jobs[place], 1, cause, length)


def _merged(rows: bytes, begin_us: Micros, jobs: list[JobId]) -> Iterator[TurnSpan]:
    for offset, length, place, cause, count, busy in _MERGED.iter_unpack(rows):
        begin = begin_us + offset
        yield TurnSpan(begin, begin + length, jobs[place], count, cause, busy)


def _check(spans: list[TurnSpan]) -> None:
    end = 0
    for span in spans:
        whole = span.turns > 0 and span.busy_us <= span.end_us - span.begin_us and span.cause < len(CAUSES)
        bounded = span.end_us <= LARGEST_NUMBER and span.job <= LARGEST_NUMBER
        if span.begin_us < end or not whole or not bounded:
            raise SpoiltBlock("its turns cannot have been")
        end = span.end_us


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
