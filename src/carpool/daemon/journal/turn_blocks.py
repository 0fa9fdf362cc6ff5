"""Turns of a lane, packed: 24 bytes each, merged to fewer where they are old, or shown on few pixels."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from carpool.core.model import Cause, JobId, Micros

#: Begin (wall clock), length and busy time in microseconds, job, and the count above the cause.
_PACKED = struct.Struct("<QIIII")
LONGEST_US: Micros = 2**32 - 1
LARGEST_JOB = 2**32 - 1
LARGEST_COUNT = 2**24 - 1
SEVERAL = "several"
#: What ended turns; a number is the place here.  ``""``: the turn goes on; `unknown`: the daemon ended.
CAUSES = ("", "unknown", "left", "paused", *(cause.value for cause in Cause), SEVERAL)


class TurnSpan(NamedTuple):
    """Turns from ``begin_us`` to ``end_us``: of ``job`` most of the time.

    ``turns``: how many there were; 0: the rest of a turn that is longer than one span can be.  ``busy_us``: how long
    any job had the turn.  ``cause``: how the last one ended.
    """

    begin_us: Micros
    end_us: Micros
    job: JobId
    turns: int
    cause: str
    busy_us: Micros


def one_turn(begin_us: Micros, end_us: Micros, job: JobId, cause: str) -> Iterator[TurnSpan]:
    """A turn, in pieces that can be packed."""
    turns = 1
    while end_us - begin_us > LONGEST_US:
        yield TurnSpan(begin_us, begin_us + LONGEST_US, job, turns, "", LONGEST_US)
        begin_us, turns = begin_us + LONGEST_US, 0
    yield TurnSpan(begin_us, end_us, job, turns, cause, end_us - begin_us)


def pack(spans: Iterable[TurnSpan]) -> bytes:
    """``spans``: none longer than `LONGEST_US`."""
    return b"".join(
        _PACKED.pack(
            *(span.begin_us, span.end_us - span.begin_us, span.busy_us, min(span.job, LARGEST_JOB)),
            min(span.turns, LARGEST_COUNT) << 8 | CAUSES.index(span.cause),
        )
        for span in spans
    )


def unpack(data: bytes) -> Iterator[TurnSpan]:
    """Raises ValueError for what `pack` has not made."""
    try:
        for begin_us, length_us, busy_us, job, word in _PACKED.iter_unpack(data):
            if busy_us > length_us or word & 0xFF >= len(CAUSES):
                raise ValueError("a packed turn makes no sense")
            yield TurnSpan(begin_us, begin_us + length_us, job, word >> 8, CAUSES[word & 0xFF], busy_us)
    except struct.error as error:
        raise ValueError(str(error)) from None


def merged(spans: Iterable[TurnSpan], begin_us: Micros, width_us: float) -> Iterator[TurnSpan]:
    """At most one for each stretch of ``width_us`` from ``begin_us`` on, in which it begins; none overlap.

    ``spans``: of one lane, in order.  A span belongs where it begins.  None gets longer than `LONGEST_US`.
    """
    group: list[TurnSpan] = []
    place = -1
    for span in spans:
        where = int(max(0, span.begin_us - begin_us) / width_us)
        if group and (where != place or span.end_us - group[0].begin_us > LONGEST_US):
            yield together(group)
            group = []
        place = where
        group.append(span)
    if group:
        yield together(group)


def together(group: list[TurnSpan]) -> TurnSpan:
    """One for several in order, which is itself where there is one."""
    if len(group) == 1:
        return group[0]
    times: Counter[JobId] = Counter()
    for span in group:
        times[span.job] += span.busy_us
    job = max(times, key=lambda number: (times[number], -number))
    turns, busy_us = sum(span.turns for span in group), sum(span.busy_us for span in group)
    return TurnSpan(group[0].begin_us, group[-1].end_us, job, turns, group[-1].cause, busy_us)


def within(spans: Iterable[TurnSpan], since_us: Micros, until_us: Micros) -> Iterator[TurnSpan]:
    """Those that have a part between the two times."""
    return (span for span in spans if span.begin_us < until_us and span.end_us > since_us)
