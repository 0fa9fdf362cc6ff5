"""Grids of parameters: one job for each combination of values.

In the command, the name and the environment ``{lr}`` is replaced by the value of the parameter ``lr``; other braces are
left alone, because commands are full of them (JSON, awk).  Besides, each job has ``CARPOOL_PARAM_LR``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

MOST_JOBS = 1000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Values = Mapping[str, str]
Grid = Mapping[str, Sequence[str]]


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


def check_size(grids: Sequence[Grid]) -> None:
    """Raise ValueError if the grids make too many jobs together."""
    count = sum(math.prod(len(values) for values in grid.values()) for grid in grids)
    if count > MOST_JOBS:
        raise ValueError(f"that makes {count} jobs; one submission has at most {MOST_JOBS}")


def combinations(grid: Grid) -> Iterator[dict[str, str]]:
    """Yield combinations in the order of the parameters: the last parameter changes fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def filled(text: str, values: Values) -> str:
    """Return ``text`` with the value in place of each ``{name}``; braces within values stay."""
    if not values:
        return text
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], text)


def named(name: str, values: Values) -> str:
    """Return the job's name, with the values in their places, or behind the name if it has no places."""
    replaced = filled(name, values)
    if replaced != name or not values:
        return replaced
    return " ".join([*([name] if name else []), *(f"{key}={value}" for key, value in values.items())])
