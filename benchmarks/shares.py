"""Who got how much of a device while several had work for it: from the times at which iterations ended."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence

Ends = Sequence[float]  # in seconds, ascending; the first one is when the first iteration had not begun yet


def common_window(jobs: Sequence[Ends]) -> tuple[float, float]:
    """While all of them had work.  Raises ValueError if there is no such time."""
    begin, end = max(ends[0] for ends in jobs), min(ends[-1] for ends in jobs)
    if end <= begin:
        raise ValueError(
            f"they never had work at the same time: the last began {begin - end:.1f} s after the first end"
        )
    return begin, end


def iterations_within(ends: Ends, begin: float, end: float) -> float:
    """Iterations between two moments within the job's life; what is cut counts in parts.

    >>> iterations_within([0.0, 1.0, 2.0, 4.0], 0.5, 3.0)
    2.0
    """
    return _place(ends, end) - _place(ends, begin)


def _place(ends: Ends, moment: float) -> float:
    """How many iterations had ended, with the part of the one that was under way."""
    after = bisect_right(ends, moment)
    if after == 0 or after == len(ends):
        return float(max(0, after - 1))
    before, following = ends[after - 1], ends[after]
    return after - 1 + (moment - before) / (following - before)


def rate(ends: Ends, begin: float, end: float) -> float:
    """Iterations per second between two moments."""
    return iterations_within(ends, begin, end) / (end - begin)


def total_throughput(alone: Sequence[Ends], together: Sequence[Ends]) -> float:
    """Of jobs that run at once, in units of the same jobs one after another: 1 is as much work in as much time."""
    begin, end = common_window(together)
    return sum(
        rate(shared, begin, end) / rate(own, own[0], own[-1]) for own, shared in zip(alone, together, strict=True)
    )


def phases(jobs: Sequence[Ends]) -> list[tuple[float, float, list[int]]]:
    """Begin, end and the jobs with work, from one arrival or departure to the next."""
    moments = sorted({moment for ends in jobs for moment in (ends[0], ends[-1])})
    found = []
    for begin, end in itertools.pairwise(moments):
        there = [number for number, ends in enumerate(jobs) if ends[0] <= begin and end <= ends[-1]]
        found.append((begin, end, there))
    return found


def worst_share(amounts: Sequence[float]) -> float:
    """How far the share that is furthest from an equal one is from it, as a part of it.

    >>> round(worst_share([1.0, 1.0, 1.3]), 3)
    0.182
    """
    fair = sum(amounts) / len(amounts)
    return max(abs(amount / fair - 1) for amount in amounts)
