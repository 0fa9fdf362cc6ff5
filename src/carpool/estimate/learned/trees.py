"""Boosted regression trees as data: read from JSON, evaluated without any library.

Estimates are made in the interpreter of the job, where only PyTorch has to be installed.  The trees are grown by
`benchmarks/estimators/boosting.py` (Friedman: "Greedy function approximation: a gradient boosting machine", Annals of
Statistics 29(5), 2001).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: A leaf's value, or (feature, threshold, tree up to it, tree above it).
Tree = float | tuple[int, float, "Tree", "Tree"]

_DEEPEST = 12


class DamagedWeights(Exception):
    """A file differs from the shipped one.  The text is for users."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Boosted regression trees: the value is ``start`` plus the value of each tree."""

    start: float
    trees: tuple[Tree, ...]

    def value(self, features: Sequence[float]) -> float:
        return self.start + sum(_value(tree, features) for tree in self.trees)


def forest(content: Any, features: int) -> Forest:
    """Read trees from JSON.  Raises DamagedWeights, also for a tree that asks for a feature beyond ``features``."""
    if not isinstance(content, dict) or set(content) != {"start", "trees"} or not isinstance(content["trees"], list):
        raise DamagedWeights("a forest has a start and trees")
    return Forest(number(content["start"]), tuple(_tree(each, features, _DEEPEST) for each in content["trees"]))


def number(content: Any) -> float:
    """Read a finite number from JSON.  Raises DamagedWeights."""
    if isinstance(content, bool) or not isinstance(content, int | float) or not math.isfinite(content):
        raise DamagedWeights(f"{str(content)[:40]!r} is not a number")
    return float(content)


def _tree(content: Any, features: int, depth: int) -> Tree:
    if not isinstance(content, list):
        return number(content)
    if len(content) != 4 or depth == 0:
        raise DamagedWeights("a tree is a number, or a feature, a threshold and two trees")
    feature, threshold, below, above = content
    if type(feature) is not int or not 0 <= feature < features:
        raise DamagedWeights(f"a tree asks for feature {feature!r} of {features}")
    return feature, number(threshold), _tree(below, features, depth - 1), _tree(above, features, depth - 1)


def _value(tree: Tree, features: Sequence[float]) -> float:
    while isinstance(tree, tuple):
        feature, threshold, below, above = tree
        tree = below if features[feature] <= threshold else above
    return tree
