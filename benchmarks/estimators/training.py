"""From measured runs to `Weights`: the rule of thumb, the trees that correct it, and the margin that holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.estimators.boosting import Growth, as_json, grow
from benchmarks.estimators.data import Row
from carpool.core.model import MIB
from carpool.estimate.learned import SizeLevel, Weights
from carpool.estimate.learned.trees import LEVELS, Forest, numbers, rule_of_thumb

SEED = 20261121
UNDER = 0.05  # of the runs may lie above the range
BELOW = 0.05  # and below it
UPPER = 0.93  # quantile that the upper trees learn; the margin makes up for what it misses
FOLDS = 4
#: The high quantile is known from the few rows at the edge: little trees, many rows in each leaf.
MIDDLE_GROWTH, UPPER_GROWTH = Growth(), Growth(rounds=60, depth=3, least=30)


def train(rows: Sequence[Row], folds: int = FOLDS) -> Weights:
    return {name: train_level(rows, name, folds) for name in LEVELS}


def train_level(rows: Sequence[Row], name: str, folds: int = FOLDS) -> SizeLevel:
    """The margins are conformal: from models held out by family, with what the others have taught."""
    above, below = [], []
    for others, held_out in split(rows, folds, lambda row: row.family):
        level = _fit(others, name)
        for row in held_out:
            above.append(_ratio(row, level, name) - level.upper.value(numbers(row.features, name)))
            below.append(level.middle.value(numbers(row.features, name)) - _ratio(row, level, name))
    return replace(_fit(rows, name), margin=_conformal(above, UNDER), below=_conformal(below, BELOW))


def split(
    rows: Sequence[Row], folds: int, group: Callable[[Row], str], seed: int = SEED
) -> Iterator[tuple[list[Row], list[Row]]]:
    """Each group is held out once, as a whole; the folds have about as many rows each."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(group(row), []).append(row)
    order = [sorted(groups)[place] for place in np.random.default_rng(seed).permutation(len(groups))]
    sizes, fold_of = [0] * folds, {}
    for name in sorted(order, key=lambda name: -len(groups[name])):  # stable: the seed decides among equals
        fold_of[name] = sizes.index(min(sizes))
        sizes[fold_of[name]] += len(groups[name])
    for fold in range(folds):
        held_out = [row for row in rows if fold_of[group(row)] == fold]
        if held_out:
            yield [row for row in rows if fold_of[group(row)] != fold], held_out


def content(weights: Weights, source: str) -> dict[str, Any]:
    """As the file holds it."""
    levels = {
        name: {
            "coefficients": level.coefficients, "margin": level.margin, "below": level.below,
            "middle": as_json(level.middle), "upper": as_json(level.upper),
        }
        for name, level in weights.items()
    }  # fmt: skip
    return {"source": source, "seed": SEED, "levels": levels}


def _fit(rows: Sequence[Row], name: str) -> SizeLevel:
    """Without margins."""
    nothing = Forest(0.0, ())
    bare = SizeLevel(_coefficients(rows, name), nothing, nothing, 0.0, 0.0)
    seen, wanted = [numbers(row.features, name) for row in rows], [_ratio(row, bare, name) for row in rows]
    middle = grow(seen, wanted, 0.5, MIDDLE_GROWTH)
    upper = grow(seen, wanted, UPPER, UPPER_GROWTH)
    return replace(bare, middle=middle, upper=upper)


def _ratio(row: Row, level: SizeLevel, name: str) -> float:
    return math.log(row.measured / rule_of_thumb(row.features, name, level.coefficients))


def _coefficients(rows: Sequence[Row], name: str) -> tuple[float, float, float]:
    """Least squares of relative errors."""
    known = 2 if name == "peaks" else 3
    measured = np.array([row.measured for row in rows])
    columns = np.array([[1.0, row.live, row.features.parameter_bytes / MIB][:known] for row in rows])
    found = np.linalg.lstsq(columns / measured[:, None], np.ones(len(rows)), rcond=None)[0]
    fixed, per_peak, per_weights = (*(float(f"{max(each, 0.0):.6g}") for each in found), 0.0)[:3]
    return fixed, per_peak, per_weights


def _conformal(scores: Sequence[float], share: float) -> float:
    """What all but ``share`` of the scores are below, with the correction for so many of them."""
    rank = min(math.ceil((len(scores) + 1) * (1 - share)), len(scores))
    return float(f"{sorted(scores)[rank - 1]:.6g}")
