"""The option ``--array``: indices, and how many of their jobs run at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from carpool.cli.request.sweep import MOST_JOBS

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


@dataclass(frozen=True, slots=True)
class ArrayRange:
    """``at_most``: how many of the jobs run at once; 0: as many as there is room for."""

    indices: tuple[int, ...]
    at_most: int


def array_of(text: str) -> ArrayRange:
    """Parse ``0-9`` or ``1,3,5-20:5``, each perhaps with ``%N`` behind it.  Raises ValueError, for people.

    >>> array_of("1,4-8:2%3")
    ArrayRange(indices=(1, 4, 6, 8), at_most=3)
    """
    ranges, percent, most = text.partition("%")
    if percent and (not most.isdecimal() or not int(most)):
        raise ValueError(f"{text!r}: behind the % stands how many jobs run at once, as in 0-9%3")
    indices = sorted({index for part in ranges.split(",") for index in _indices(text, part)})
    if len(indices) > MOST_JOBS:
        raise ValueError(f"that makes {len(indices)} jobs; one submission has at most {MOST_JOBS}")
    return ArrayRange(tuple(indices), int(most or 0))


def _indices(text: str, part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(f"{text!r} is no list of indices: write for example 0-9, 1,3,5 or 0-20:5")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first or not step:
        raise ValueError(f"{part!r} has no index")
    return range(first, last + 1, step)
