"""A measured figure, and the statistics behind it."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the result file.

    ``value`` is the median of the runs, ``low`` and ``high`` their range.  ``target`` is an upper bound unless
    ``at_least`` is set; None: reported only.  ``detail`` holds the two sides of a ratio and whatever else is needed to
    judge it.
    """

    benchmark: str
    name: str
    value: float
    unit: str  # "ratio", "us", "MiB", "1/s", "s"
    low: float
    high: float
    runs: int
    target: float | None = None
    at_least: bool = False
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def median_figure(
    benchmark: str,
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    target: float | None = None,
    at_least: bool = False,
    detail: dict[str, Any] | None = None,
) -> Figure:
    """The median of several runs with its range."""
    middle = statistics.median(values)
    return Figure(benchmark, name, middle, unit, min(values), max(values), len(values), target, at_least, detail or {})


def measured_once(
    benchmark: str, name: str, unit: str, value: float, *, target: float | None = None, **detail: Any
) -> Figure:
    """For figures that are already statistics over thousands of events."""
    return Figure(benchmark, name, value, unit, value, value, 1, target, False, detail)


def rounds_of(usual: int) -> int:
    """How often a long benchmark repeats itself; ``CARPOOL_ROUNDS`` bounds it where time is short."""
    return max(1, min(usual, int(os.environ.get("CARPOOL_ROUNDS", usual))))


class Skipped(Exception):
    """A benchmark cannot run here; the text says why.  The result file records it."""
