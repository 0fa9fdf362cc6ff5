"""Sizes and times as users write them: "1GiB", "300MiB", "10s", "1h06m".  Shared by the daemon and the command line.

Everything that the formatters of `core.units` print can be parsed.  The formatters are re-exported here for packages
built on the protocol.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from carpool.core.units import format_duration, format_size, format_time_us

__all__ = [
    "LARGEST", "SIZE_UNITS", "TELEMETRY_US", "TIME_UNITS_US", "exact_size", "exact_time", "format_duration",
    "format_size", "format_time_us", "parse_size", "parse_time_us", "positive_time_us",
    "telemetry_interval",
]  # fmt: skip

SIZE_UNITS: dict[str, int] = {
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
#: The shortest and the longest interval between two measurements: counters of GPUs need 100 ms.
TELEMETRY_US = (100_000, 60_000_000)
LARGEST = (1 << 63) - 1  # the largest integer that SQLite and the seats can hold

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_SIZE_HINT, _TIME_HINT = "write for example 300MiB, 1.5GiB or 4096B", "write for example 30s, 5m, 1h06m, 1.5h or 2d"
_EXACT_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
_EXACT_TIMES = (("s", 1_000_000), ("ms", 1000), ("us", 1))


def parse_size(text: str) -> int:
    """Parse bytes.  A number needs a unit, except 0.  Raises ValueError with a message for the user.

    >>> parse_size("1.5 GiB"), parse_size("0")
    (1610612736, 0)
    """
    parts = _parts(text)
    if len(parts) != 1 or parts[0][1] not in ("", *SIZE_UNITS):
        raise ValueError(f"{text!r} is not a size: {_SIZE_HINT}")
    number, unit = parts[0]
    if not unit and Fraction(number):
        raise ValueError(f"{text!r} is not a size, because it has no unit: did you mean {number}{_likely(number)}?")
    return _within_bounds(text, int(Fraction(number) * SIZE_UNITS.get(unit, 1)), "size")


def parse_time_us(text: str) -> int:
    """Parse a time into microseconds; a bare number means seconds.  Raises ValueError with a message for the user.

    >>> parse_time_us("90"), parse_time_us("1h06m"), parse_time_us("1.5 s")
    (90000000, 3960000000, 1500000)
    """
    parts = _parts(text)
    factors = [TIME_UNITS_US.get(unit, 0) for _, unit in parts]
    if not _is_sum([number for number, _ in parts], factors) or (len(parts) > 1 and not parts[-1][1]):
        raise ValueError(f"{text!r} is not a time: {_TIME_HINT}")
    total = sum(Fraction(number) * factor for (number, _), factor in zip(parts, factors, strict=True))
    return _within_bounds(text, int(total), "time")


def positive_time_us(text: str) -> int:
    """Parse a time above 0 as `parse_time_us` does.  Raises ValueError with a message for the user."""
    us = parse_time_us(text)
    if us < 1:
        raise ValueError(f"{text!r} is too short: it must be more than 0")
    return us


def exact_size(number: int) -> str:
    """Format bytes in the largest unit of which they are a whole number, so that parsing gives the same number.

    >>> exact_size(4 << 20), exact_size(1000), exact_size(0)
    ('4MiB', '1000B', '0')
    """
    return _exact(number, _EXACT_SIZES)


def exact_time(us: int) -> str:
    """Format microseconds so that parsing gives the same number.

    From a minute on the form is that of `format_duration`, where that loses nothing.

    >>> exact_time(3_600_000_000), exact_time(86_400_000_000), exact_time(3_601_000_000)
    ('1h00m', '1d00h', '3601s')
    >>> exact_time(30_000_000), exact_time(50_000), exact_time(0)
    ('30s', '50ms', '0')
    """
    text = format_duration(us)
    return text if us >= TIME_UNITS_US["m"] and parse_time_us(text) == us else _exact(us, _EXACT_TIMES)


def telemetry_interval(text: str) -> int:
    """Parse how often devices are measured, into microseconds.  Raises ValueError with a message for the user.

    >>> telemetry_interval("500ms")
    500000
    """
    us = parse_time_us(text)
    shortest, longest = TELEMETRY_US
    if not shortest <= us <= longest:
        raise ValueError(f"{text!r} is not between {format_time_us(shortest)} and {format_time_us(longest)}")
    return us


def _parts(text: str) -> list[tuple[str, str]]:
    """Return numbers with their units in lower case; empty if the text contains anything else."""
    text, found, place = text.strip(), [], 0
    while place < len(text):
        match = _PART.match(text, place)
        if match is None:
            return []
        found.append((match[1], match[2].lower()))
        place = match.end()
    return found


def _is_sum(numbers: list[str], factors: list[int]) -> bool:
    """Whether all units are known and decrease, and only the last number has a fraction."""
    ordered = all(larger > smaller for larger, smaller in pairwise(factors))
    return bool(factors) and min(factors) > 0 and ordered and not any("." in number for number in numbers[:-1])


def _likely(number: str) -> str:
    """Return the unit that is most plausible for a number without one."""
    return "GiB" if Fraction(number) < 1 << 10 else "MiB" if Fraction(number) < 1 << 20 else "B"


def _exact(value: int, units: tuple[tuple[str, int], ...]) -> str:
    name, factor = next((name, factor) for name, factor in units if value % factor == 0)
    return f"{value // factor}{name}" if value else "0"


def _within_bounds(text: str, value: int, what: str) -> int:
    if value > LARGEST:
        raise ValueError(f"{text!r} is too large for a {what}")
    return value
