"""The two clocks: one for decisions (the core's axis, shared with the seats) and one for people."""

from __future__ import annotations

import time


def monotonic_us() -> int:
    """CLOCK_MONOTONIC in microseconds: the core's time and that of the seats."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def wall_us() -> int:
    """Wall clock in microseconds since the epoch."""
    return time.time_ns() // 1000
