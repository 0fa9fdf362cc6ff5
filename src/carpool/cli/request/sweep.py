"""Grids of parameters: one job for each combination of values.

In the command, the name and the environment ``{lr}`` is replaced by the value of the parameter ``lr``; other braces are
left alone, because commands are full of them (JSON, awk).  Besides, each job has ``CARPOOL_PARAM_LR``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from carpool.options.arrays import MOST_JOBS

Values = Mapping[str, str]
Grid = Mapping[str, Sequence[str]]


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
