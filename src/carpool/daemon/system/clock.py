"""Clocks of the daemon, days of its local time zone, and the present boot of the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Protocol

from carpool.core.model import Micros

WALL_CLOCK = time.CLOCK_REALTIME
#: A smaller difference between the clocks counts as the time between two readings, not as a change of the clock.
LEAST_STEP_US = 500_000
_APART_US = 50_000
HALF_HOUR: Micros = 1_800_000_000  # clocks change by multiples of it
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def monotonic_us() -> int:
    """Return CLOCK_MONOTONIC in microseconds: the time of the core and of the seats."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def wall_us() -> int:
    """Return the wall clock time in microseconds since the epoch."""
    return time.clock_gettime_ns(WALL_CLOCK) // 1000


class Timer(Protocol):
    """The handle that `Clock.call_at` returns."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Clock(Protocol):
    """The daemon loop's view of time.  Tests use a clock that jumps."""

    def now_us(self) -> int:
        """Return the present time in microseconds."""
        ...

    def call_at(self, when_us: int, call: Callable[[], None]) -> Timer:
        """Call once, not before ``when_us``, unless the timer is cancelled."""


class MonotonicClock:
    """Real time, on the running event loop."""

    def now_us(self) -> int:
        """Return the machine's monotonic time in microseconds."""
        return monotonic_us()

    def call_at(self, when_us: int, call: Callable[[], None]) -> Timer:
        """Call a function on the loop at a time of this clock."""
        timer = _MonotonicTimer(when_us, call)
        timer.arm()
        return timer


class _MonotonicTimer:
    """A timer that checks the time when it fires; the event loop's timers are a little early and count in seconds."""

    def __init__(self, when_us: int, call: Callable[[], None]) -> None:
        self._when_us = when_us
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        delay = max(0, self._when_us - monotonic_us()) / 1e6
        self._handle = asyncio.get_running_loop().call_later(delay, self._due)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _due(self) -> None:
        if monotonic_us() < self._when_us:
            self.arm()
        else:
            self._call()


def wall_ahead_us() -> int:
    """Return how far the wall clock, which goes on over a reboot, is ahead of the core's clock."""
    while True:
        before, wall, after = monotonic_us(), wall_us(), monotonic_us()
        if after - before < _APART_US:  # otherwise the process was stopped in between
            return wall - before


class WallSteps:
    """Notices when the wall clock has been set.  ``ahead_us``: how far it was ahead of the monotonic clock before."""

    def __init__(self, ahead_us: int | None = None, read: Callable[[], int] = wall_ahead_us) -> None:
        self._read = read
        self.ahead_us = read() if ahead_us is None else ahead_us

    def take(self) -> int:
        """Return by how much the wall clock has been set forward since the last call (negative: back); 0: not set."""
        step = self._read() - self.ahead_us
        if abs(step) < LEAST_STEP_US:
            return 0
        self.ahead_us += step
        return step


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


def boot_id() -> str:
    """Return the kernel's identifier of this boot."""
    return BOOT_ID.read_text().strip()
