"""Sizes and times as people write them: "1GiB", "300MiB", "10s", "2h".  Shared by the daemon and the command line.

How they are printed is said in `core.units`; its formatters are here as well, for what stands on the protocol.
"""

from __future__ import annotations

import re
from fractions import Fraction

from carpool.core.units import format_duration, format_size, format_time_us

__all__ = [
    "LARGEST", "SIZE_UNITS", "TELEMETRY_US", "TIME_UNITS_US", "format_duration", "format_size", "format_time_us",
    "parse_size", "parse_time_us", "telemetry_interval",
]  # fmt: skip

SIZE_UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kib": 1 << 10,
    "kb": 1000,
    "m": 1 << 20,
    "mib": 1 << 20,
    "mb": 1000**2,
    "g": 1 << 30,
    "gib": 1 << 30,
    "gb": 1000**3,
    "t": 1 << 40,
    "tib": 1 << 40,
    "tb": 1000**4,
}
TIME_UNITS_US: dict[str, int] = {
    "us": 1,
    "ms": 1000,
    "": 1_000_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
#: The shortest and the longest pause between two measurements: counters of GPUs need 100 ms.
TELEMETRY_US = (100_000, 60_000_000)
LARGEST = (1 << 63) - 1  # what SQLite and the seats can hold

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*\Z", re.ASCII)


def parse_size(text: str) -> int:
    """Bytes.  Raises ValueError with a message for the user."""
    return _parse(text, SIZE_UNITS, "size", "write for example 300MiB, 1.5GiB or 1048576 (bytes)")


def parse_time_us(text: str) -> int:
    """Microseconds; a bare number means seconds.  Raises ValueError with a message for the user."""
    return _parse(text, TIME_UNITS_US, "time", "write for example 30s, 5m, 1.5h or 2d")


def telemetry_interval(text: str) -> int:
    """How often devices are measured, in microseconds.  Raises ValueError with a message for the user.

    >>> telemetry_interval("500ms")
    500000
    """
    us = parse_time_us(text)
    shortest, longest = TELEMETRY_US
    if not shortest <= us <= longest:
        raise ValueError(f"{text!r} is not between {format_time_us(shortest)} and {format_time_us(longest)}")
    return us


def _parse(text: str, units: dict[str, int], what: str, hint: str) -> int:
    match = _QUANTITY.match(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a {what}: {hint}")
    value = int(Fraction(match[1]) * factor)
    if value > LARGEST:
        raise ValueError(f"{text!r} is too large for a {what}")
    return value
