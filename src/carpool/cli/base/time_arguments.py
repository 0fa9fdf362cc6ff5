"""Moments in the past as people write them: a time of day, a date, or how long ago."""

from __future__ import annotations

import time

from carpool.cli.base.options_common import Parsed
from carpool.cli.render import formatting
from carpool.protocol.units import parse_time_us

DAY_US = 86_400_000_000
DATED = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
OF_DAY = ("%H:%M:%S", "%H:%M")
HINT = "write a time such as 14:05 or '2026-01-31 14:05', or how long ago, such as 10m"


def past_moment_us(text: str) -> int:
    """Parse a past moment, in microseconds of the wall clock.  A time of day that is still to come was yesterday.

    Raises ValueError, for people.
    """
    now = formatting.now_us()
    found = _dated(text.strip())
    if found is None:
        found = _of_day(text.strip(), now)
    if found is None:
        found = now - _span(text)
    if found > now:
        raise ValueError(f"{text!r} is in the future: {HINT}")
    return max(0, found)


def _dated(text: str) -> int | None:
    for layout in DATED:
        try:
            return _micros(time.strptime(text, layout))
        except ValueError:
            continue
    return None


def _of_day(text: str, now: int) -> int | None:
    today = time.strftime("%Y-%m-%d", time.localtime(now // 1_000_000))
    for layout in OF_DAY:
        try:
            found = _micros(time.strptime(f"{today} {text}", f"%Y-%m-%d {layout}"))
        except ValueError:
            continue
        return found if found <= now else found - DAY_US
    return None


def _micros(moment: time.struct_time) -> int:
    return int(time.mktime(moment)) * 1_000_000


def _span(text: str) -> int:
    """Parse how long ago a moment was, in microseconds.  Raises ValueError, for people."""
    try:
        return parse_time_us(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: {HINT}") from None


MOMENT = Parsed("time", past_moment_us)
