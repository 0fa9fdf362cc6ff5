"""Boosted regression trees as data: read from JSON, evaluated without any library.

Estimates are made in the interpreter of the job, where only PyTorch has to be installed.  The trees are grown by
`benchmarks/estimators/boosting.py` (Friedman: "Greedy function approximation: a gradient boosting machine", Annals of
Statistics 29(5), 2001).

The input of an estimate by trees: the level of knowledge about a job, and its numbers.

`benchmarks/estimators` trains on exactly these, so a change here needs `python -m benchmarks.estimators`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carpool.core.model import MIB
from carpool.estimate.base import Features

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
        """Return the value for these features."""
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


#: Levels of knowledge, from least to most.  Each has trees of its own.
LEVELS = ("peaks", "parameters", "layers")

#: Kinds of layers, by a part of their class's name.
KINDS = ("Conv", "Linear", "LayerNorm", "BatchNorm")
_LEAST_STEP_MIB = 1500.0  # context and libraries at the optimizer's step, when weights exist about four times
_COPIES_AT_STEP = 4


def level_of(features: Features) -> str | None:
    """Return the highest level for which ``features`` suffice; None without the peaks of a rehearsal."""
    if not features.peak_backward_bytes or features.batch_size < 1:
        return None
    if not features.parameter_bytes:
        return "peaks"
    return "layers" if features.layers and features.input_bytes else "parameters"


def numbers(features: Features, level: str) -> list[float]:
    """Return the numbers by which the trees of ``level`` decide, with memory in MiB."""
    batch, peak, forward = features.batch_size, *_peaks(features)
    backward = max(peak - forward, 0.0)
    found = [
        math.log(peak), math.log(batch), math.log(forward / batch), backward / peak,
        math.log1p(backward), math.log1p(backward / batch),
    ]  # fmt: skip
    if level != "peaks":
        weights = features.parameter_bytes / MIB
        found += [math.log(weights), weights / peak, math.log(peak + _COPIES_AT_STEP * weights + _LEAST_STEP_MIB)]
    if level == "layers":
        found += _of_layers(features)
    return found


def rule_of_thumb(features: Features, level: str, coefficients: tuple[float, float, float]) -> float:
    """Return MiB: a constant, plus factors times the peak and the weights.  The trees correct this figure."""
    fixed, per_peak, per_weights = coefficients
    peak, _ = _peaks(features)
    if level == "peaks":
        return fixed + per_peak * peak
    weights = features.parameter_bytes / MIB
    return max(fixed + per_peak * peak + per_weights * weights, _LEAST_STEP_MIB + _COPIES_AT_STEP * weights)


def _peaks(features: Features) -> tuple[float, float]:
    """Return the peaks after the backward and after the forward pass, in MiB, without weights; neither is 0."""
    peak = max((features.peak_backward_bytes or 0) / MIB, 1 / MIB)
    return peak, max((features.peak_forward_bytes or features.peak_backward_bytes or 0) / MIB, 1 / MIB)


def _of_layers(features: Features) -> list[float]:
    counts = [float(count_of(features.layers, kind)) for kind in KINDS]
    everything = float(sum(features.layers.values()))
    example = features.input_bytes / features.batch_size
    return [*counts, everything, counts[0] / everything, math.log(example), math.log1p(features.buffer_bytes / MIB)]


def count_of(layers: Mapping[str, int], kind: str) -> int:
    """Return the number of layers whose class's name contains ``kind``."""
    return sum(count for name, count in layers.items() if kind in name)
