"""Sizes, times and job numbers for people: formatted in this one place for reasons, messages and tables alike."""

from __future__ import annotations

from carpool.core.model import GIB, MIB, Micros

KIB = 1 << 10
SECOND_US, MINUTE_S, HOUR_S, DAY_S = 1_000_000, 60, 3600, 86_400


def format_size(number: int) -> str:
    """Bytes in the largest unit that they fill, one decimal where it says something.

    >>> [format_size(number) for number in (12, 256 << 20, 3 << 29)]
    ['12 B', '256 MiB', '1.5 GiB']
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if number >= unit:
            return f"{_short(number / unit)} {name}"
    return f"{number} B"


def format_seconds(time_us: Micros) -> str:
    """Microseconds as seconds with exactly one decimal, so that columns of them are easy to compare.

    >>> [format_seconds(us) for us in (400_000, 75_000_000)]
    ['0.4 s', '75.0 s']
    """
    return f"{time_us / SECOND_US:.1f} s"


def format_time_us(us: Micros) -> str:
    """Microseconds in seconds, milliseconds or microseconds, one decimal where it says something: for settings.

    >>> [format_time_us(us) for us in (0, 500, 50_000, 1_500_000, 30_000_000, 120_000_000)]
    ['0 s', '500 us', '50 ms', '1.5 s', '30 s', '120 s']
    """
    if us == 0 or us >= SECOND_US:
        return f"{_short(us / SECOND_US)} s"
    return f"{_short(us / 1000)} ms" if us >= 1000 else f"{us} us"


def format_duration(us: Micros) -> str:
    """Return a duration in two units at most; a negative one counts as 0, because clocks differ.

    >>> [format_duration(s * SECOND_US) for s in (0, 12, 185, 7620, 356_400)]
    ['0.0s', '12s', '3m05s', '2h07m', '4d03h']
    """
    if us < 10 * SECOND_US:
        return f"{max(us, 0) / SECOND_US:.1f}s"
    seconds = us // SECOND_US
    if seconds < MINUTE_S:
        return f"{seconds}s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S}m{seconds % MINUTE_S:02}s"
    if seconds < DAY_S:
        return f"{seconds // HOUR_S}h{seconds % HOUR_S // MINUTE_S:02}m"
    return f"{seconds // DAY_S}d{seconds % DAY_S // HOUR_S:02}h"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def job_number(job: int, array: int | None, index: int | None) -> str:
    """Name a job as people do: ``7_3`` for an element of an array, else the job's id."""
    return str(job) if array is None or index is None else f"{array}_{index}"
