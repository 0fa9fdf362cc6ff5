"""The input of an estimate by trees: the level of knowledge about a job, and its numbers.

`benchmarks/estimators` trains on exactly these, so a change here needs `python -m benchmarks.estimators`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from carpool.core.model import MIB
from carpool.estimate.base import Features

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
