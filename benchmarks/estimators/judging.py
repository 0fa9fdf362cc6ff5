"""How good estimates are for models that training has not seen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.estimators.data import Row, sound
from benchmarks.estimators.training import split, train_level
from carpool.core.model import MIB

GB_PER_MIB = MIB / 1e9
CAPACITY_MIB = 40_960.0  # of the device that was measured on


@dataclass(frozen=True, slots=True)
class Judged:
    """One row, estimated by those that were trained without its group; MiB."""

    row: Row
    fold: int
    point: float
    high: float

    @property
    def error(self) -> float:
        return abs(self.point / self.row.measured - 1)

    def capped(self) -> Judged:
        """As somebody would say it who knows how much the device has."""
        return replace(self, point=min(self.point, CAPACITY_MIB), high=min(self.high, CAPACITY_MIB))


@dataclass(frozen=True, slots=True)
class Verdict:
    rows: int
    error: float  # mean relative error of the point
    median_error: float
    under: float  # share of rows whose range ends below what was measured
    overshoot_gb: float  # mean over all rows of what the range reaches beyond the measured
    point_under: float  # share of rows whose point lies below


def hold_out(rows: Sequence[Row], name: str, group: Callable[[Row], str], folds: int) -> list[Judged]:
    """Trains on the sound rows of the other folds; estimates all of this one."""
    found = []
    for fold, (others, held_out) in enumerate(split(rows, folds, group)):
        level = train_level(sound(others), name)
        for row in held_out:
            _, point, high = level.mib(row.features, name)
            found.append(Judged(row, fold, point, high))
    return found


def verdict(judged: Sequence[Judged]) -> Verdict:
    errors = [each.error for each in judged]
    return Verdict(
        rows=len(judged),
        error=statistics.fmean(errors),
        median_error=statistics.median(errors),
        under=statistics.fmean(each.high < each.row.measured for each in judged),
        overshoot_gb=statistics.fmean(max(each.high - each.row.measured, 0.0) for each in judged) * GB_PER_MIB,
        point_under=statistics.fmean(each.point < each.row.measured for each in judged),
    )


def floor(rows: Sequence[Row], capacity_mib: float = math.inf) -> float:
    """The mean relative error of somebody who knows all measurements, but promises no less than the live tensors."""
    return statistics.fmean(max(min(row.live, capacity_mib) / row.measured - 1, 0.0) for row in rows)
