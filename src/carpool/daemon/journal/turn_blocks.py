"""Turns in few bytes: the blocks that the journal's table `turns` is made of."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from carpool.core.model import Cause, JobId, Micros

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
        if span.begin_us < end or not whole:
            raise SpoiltBlock("its turns cannot have been")
        end = span.end_us
