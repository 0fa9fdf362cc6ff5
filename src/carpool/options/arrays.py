"""Arrays and grids of jobs, as they are written: indices of ``--array``, and values of ``--param``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: The most jobs of one submission.
MOST_JOBS = 1000
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
        raise ValueError(f"{text!r}: the number after % is how many jobs run at once, as in 0-9%3")
    indices = sorted({index for part in ranges.split(",") for index in _indices(text, part)})
    if len(indices) > MOST_JOBS:
        raise ValueError(f"that makes {len(indices)} jobs; one submission has at most {MOST_JOBS}")
    return ArrayRange(tuple(indices), int(most or 0))


def _indices(text: str, part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(f"{text!r} is not a list of indices: write for example 0-9, 1,3,5 or 0-20:5")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first or not step:
        raise ValueError(f"{part!r} has no index")
    return range(first, last + 1, step)


def parameter(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse one ``name=value,value``.  Raises ValueError, for people.

    >>> parameter("lr=1e-3,1e-4")
    ('lr', ('1e-3', '1e-4'))
    """
    name, equals, values = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not NAME=VALUE,VALUE..., as in lr=1e-3,1e-4")
    return check_name(name), check_values(name, values.split(","))


def check_name(name: str) -> str:
    """Return a name that can stand in an environment variable.  Raises ValueError, for people."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for a parameter: use letters, digits and _ only, and no digit first")
    return name


def check_values(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return the values: at least one, none empty, none twice.  Raises ValueError, for people."""
    if not values or "" in values:
        raise ValueError(f"the parameter {name} has an empty value")
    twice = next((value for number, value in enumerate(values) if value in values[:number]), None)
    if twice is not None:
        raise ValueError(f"the parameter {name} has the value {twice} twice")
    return tuple(values)
