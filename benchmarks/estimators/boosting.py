"""Growing boosted trees for a quantile.  The same rows give the same trees, bit for bit.

Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29(5), 2001: each tree is
grown on the gradient of the pinball loss, and its leaves are the quantiles of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from carpool.estimate.learned.trees import Forest, Tree

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]

#: Significant digits that are kept: rounding hides what processors' last bits differ by, and the file stays small.
_DIGITS = 6
_NO_GAIN = 1e-9


@dataclass(frozen=True, slots=True)
class Growth:
    rounds: int = 80
    rate: float = 0.12
    depth: int = 4
    least: int = 12  # rows in a leaf
    bins: int = 48


@dataclass(frozen=True, slots=True)
class _Rows:
    """``bins`` of each row and feature; a row is in bin b if it is above b of the feature's thresholds."""

    bins: Integers
    thresholds: list[Floats]


def grow(features: Sequence[Sequence[float]], wanted: Sequence[float], quantile: float, growth: Growth) -> Forest:
    """Trees for ``quantile`` (0 to 1) of ``wanted``.  Raises ValueError without rows."""
    if not features:
        raise ValueError("no rows to learn from")
    values, goal = np.array(features, dtype=np.float64), np.array(wanted)
    rows = _sorted_into_bins(values, growth.bins)
    start = _short(float(np.quantile(goal, quantile)))
    now, trees = np.full(len(goal), start), []
    for _ in range(growth.rounds):
        left = goal - now
        gradient = np.where(left > 0, quantile, quantile - 1)
        tree = _Grower(rows, gradient, left, quantile, growth).tree(np.arange(len(goal)), growth.depth)
        trees.append(tree)
        now = now + _applied(tree, values)
    return Forest(start, tuple(trees))


def as_json(forest: Forest) -> dict[str, Any]:
    return {"start": forest.start, "trees": list(forest.trees)}


def _sorted_into_bins(values: Floats, bins: int) -> _Rows:
    shares = np.linspace(0, 1, bins + 1)[1:-1]
    thresholds = [np.unique([_short(each) for each in np.quantile(column, shares)]) for column in values.T]
    found = [np.searchsorted(each, column, side="left") for each, column in zip(thresholds, values.T, strict=True)]
    return _Rows(np.stack(found, axis=1), thresholds)


class _Grower:
    def __init__(self, rows: _Rows, gradient: Floats, left: Floats, quantile: float, growth: Growth) -> None:
        self._rows, self._gradient, self._left = rows, gradient, left
        self._quantile, self._growth = quantile, growth

    def tree(self, members: Integers, depth: int) -> Tree:
        split = self._split(members) if depth and len(members) >= 2 * self._growth.least else None
        if split is None:
            return _short(self._growth.rate * float(np.quantile(self._left[members], self._quantile)))
        feature, place = split
        below = self._rows.bins[members, feature] <= place
        return (
            feature,
            float(self._rows.thresholds[feature][place]),
            self.tree(members[below], depth - 1),
            self.tree(members[~below], depth - 1),
        )

    def _split(self, members: Integers) -> tuple[int, int] | None:
        """The feature and threshold that separate the gradients best; ties go to the first."""
        gains = self._gains(members)
        best = int(gains.argmax())
        feature, place = divmod(best, gains.shape[1])
        return (feature, place) if gains[feature, place] > _NO_GAIN else None

    def _gains(self, members: Integers) -> Floats:
        """By feature and threshold; all features are counted at once, each in a row of its own."""
        bins, gradient = self._rows.bins[members], self._gradient[members]
        features, width = bins.shape[1], self._growth.bins
        places = (bins + np.arange(features) * width).ravel()
        count = _up_to(np.bincount(places, minlength=features * width), width)
        total = _up_to(np.bincount(places, np.repeat(gradient, features), features * width), width)
        others = len(members) - count
        allowed = (count >= self._growth.least) & (others >= self._growth.least)
        everything = gradient.sum()
        gain = total**2 / np.maximum(count, 1) + (everything - total) ** 2 / np.maximum(others, 1)
        gains: Floats = np.where(allowed, gain - everything**2 / len(members), -1.0)
        return gains


def _up_to(sums: Floats | Integers, width: int) -> Floats:
    """Sums over each bin and those before it, without the last bin, which is everything."""
    found: Floats = sums.reshape(-1, width).cumsum(axis=1)[:, :-1].astype(np.float64)
    return found


def _applied(tree: Tree, values: Floats) -> Floats:
    if not isinstance(tree, tuple):
        return np.full(len(values), tree)
    feature, threshold, below, above = tree
    found = np.empty(len(values))
    lower = values[:, feature] <= threshold
    found[lower], found[~lower] = _applied(below, values[lower]), _applied(above, values[~lower])
    return found


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
