"""A small model that has learned, from measured training runs, memory that fake tensors do not show.

GPUMemNet (Yousefzadeh-Asl-Miandoab et al.: "CARMA", section on memory estimation) predicts a bin of memory from counts
of layers, weights, activations and the batch.  This one takes a rehearsal's peaks, too, and predicts bytes: boosted
trees correct a rule of thumb.  The upper end of the range comes from trees for a high quantile, moved until enough of
the models that were held out lie below it (Romano, Patterson, Candès: "Conformalized Quantile Regression", NeurIPS
2019, section 4; by groups).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from carpool.core.model import MIB
from carpool.estimate.base import CannotEstimate, Features, Prediction, Subject
from carpool.estimate.learned.trees import (
    LEVELS,
    DamagedWeights,
    Forest,
    forest,
    level_of,
    number,
    numbers,
    rule_of_thumb,
)

FILE = "learned.json"
CONTEXT_BYTES = 512 * MIB  # of the total: a context as long as the job lives, about
_KNOWN = {
    "peaks": "peaks of a rehearsal",
    "parameters": "peaks of a rehearsal and the weights",
    "layers": "peaks of a rehearsal, weights and layers",
}
#: How many `numbers` each level has.
_WIDTHS = {"peaks": 6, "parameters": 9, "layers": 17}


@dataclass(frozen=True, slots=True)
class SizeLevel:
    """Trees of one level of knowledge.  All but the coefficients are logarithms of a ratio to the rule of thumb."""

    coefficients: tuple[float, float, float]
    middle: Forest
    upper: Forest
    margin: float  # added to ``upper``
    below: float  # from the middle down to the lower end of the range

    def mib(self, features: Features, name: str) -> tuple[float, float, float]:
        """Return the low, middle and high estimate, in MiB."""
        seen, base = numbers(features, name), rule_of_thumb(features, name, self.coefficients)
        middle = self.middle.value(seen)
        high = max(self.upper.value(seen) + self.margin, middle)
        return base * math.exp(middle - self.below), base * math.exp(middle), base * math.exp(high)


Weights = dict[str, SizeLevel]


class Learned:
    """The estimator ``learned``: corrects a rehearsal's peaks by the shipped trees, or by the given ``weights``."""

    name = "learned"

    def __init__(self, weights: Weights | None = None) -> None:
        self._weights = weights

    def estimate(self, subject: Subject) -> Prediction:
        """Return the corrected peaks of a rehearsal.  Raises CannotEstimate."""
        features, name = _enough(subject)
        try:
            level = (self._weights or shipped())[name]
        except DamagedWeights as error:
            raise CannotEstimate(f"the learned model cannot be read: {error}", "install carpool again") from None
        extra = more_state(features)
        low, middle, high = (round(mib * MIB) + extra for mib in level.mib(features, name))
        persistent = min(persistent_of(features), middle)
        how = f"learned from runs on an A100, by {_KNOWN[name]}"
        return Prediction(persistent, middle - persistent, low, high, self.name, how)


def _enough(subject: Subject) -> tuple[Features, str]:
    if subject.device != "cuda":
        raise CannotEstimate(
            "the learned model is for GPUs, where a context and its libraries take memory", "use faketensor on the host"
        )
    features = subject.features
    name = None if features is None else level_of(features)
    if features is None or name is None:
        raise CannotEstimate(
            "a rehearsal is needed first, and there is none", "ask for faketensor and learned together"
        )
    return features, name


def more_state(features: Features) -> int:
    """Return the bytes of optimizer state beyond the one copy of the weights that the measured runs kept."""
    return max(features.optimizer_bytes - features.parameter_bytes, 0)


def persistent_of(features: Features) -> int:
    """Return the bytes of a job's persistent memory on a GPU: context, weights, buffers and optimizer state."""
    return CONTEXT_BYTES + features.parameter_bytes + features.buffer_bytes + features.optimizer_bytes


@cache
def shipped() -> Weights:
    """Return the trees that are shipped.  Raises DamagedWeights."""
    return parse(text_of(FILE))


def text_of(name: str) -> str:
    """Return the text of a file that training has written.  Raises DamagedWeights."""
    try:
        return resources.files("carpool.estimate.learned.weights").joinpath(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedWeights(f"{name}: {error}") from None


def parse(text: str) -> Weights:
    """Parse the file of trees.  Raises DamagedWeights, which names the file."""
    try:
        content = json.loads(text)
        levels = content["levels"]
        return {name: _level(levels[name], _WIDTHS[name]) for name in LEVELS}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedWeights(f"{FILE} is damaged: {type(error).__name__}: {error}") from None
    except DamagedWeights as error:
        raise DamagedWeights(f"{FILE} is damaged: {error}") from None


def _level(content: Any, width: int) -> SizeLevel:
    fixed, per_peak, per_weights = (number(each) for each in content["coefficients"])
    return SizeLevel(
        (fixed, per_peak, per_weights),
        forest(content["middle"], width),
        forest(content["upper"], width),
        number(content["margin"]),
        number(content["below"]),
    )
