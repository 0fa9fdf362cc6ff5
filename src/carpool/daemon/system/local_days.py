"""Days of the daemon's local time zone: when each begins, and amounts spread over several days.

A day is its date, as in ``2026-11-26``: such texts sort as the days do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date, timedelta

from carpool.core.model import Micros

HALF_HOUR: Micros = 1_800_000_000  # clocks change by multiples of it


def day_of(wall: Micros) -> str:
    """Return the local date at a wall clock time.  Raises OverflowError, ValueError or OSError for absurd times."""
    return time.strftime("%Y-%m-%d", time.localtime(wall // 1_000_000))


def begin_of(day: str) -> Micros:
    """Return the first moment of a day, also where clocks skip or repeat midnight, for which `mktime` may differ."""
    year, month, number = map(int, day.split("-"))
    begin = int(time.mktime((year, month, number, 0, 0, 0, -1, -1, -1))) * 1_000_000
    while day_of(begin) < day:
        begin += HALF_HOUR
    while day_of(begin - 1) >= day:
        begin -= HALF_HOUR
    return begin


def day_after(day: str, days: int = 1) -> str:
    """Return the date ``days`` days later; negative: earlier."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def days_between(first: str, last: str) -> Iterator[str]:
    """Yield the days from the first to the last, both included."""
    while first <= last:
        yield first
        first = day_after(first)


def spread(amount: int, begin: Micros, end: Micros) -> dict[str, int]:
    """Spread an amount that arose evenly between two moments over days; the parts add up to the amount."""
    last = day_of(end)
    if begin >= end:
        return {last: amount}
    parts, given = dict[str, int](), 0
    for day in days_between(day_of(begin), last):
        until = end if day == last else begin_of(day_after(day))
        upto = amount * (until - begin) // (end - begin)
        parts[day], given = upto - given, upto
    return {day: part for day, part in parts.items() if part}
