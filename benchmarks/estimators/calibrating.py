"""How far off Horus's sum is, from CARMA's catalogue of training tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

BELOW, ABOVE = 0.05, 0.95


def calibrate(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """From (measured, Horus): what the sum is to be multiplied with, for the ends and the middle of the range.

    The ends are conformal: order statistics with the correction for so few tasks.  Raises ValueError without tasks.
    """
    if not pairs:
        raise ValueError("no tasks to calibrate by")
    ratios = sorted(measured / horus for measured, horus in pairs)
    return {"low": _at(ratios, BELOW), "middle": _at(ratios, 0.5), "high": _at(ratios, ABOVE), "tasks": len(ratios)}


def _at(ratios: Sequence[float], share: float) -> float:
    rank = (len(ratios) + 1) * share
    place = math.floor(rank) if share < 0.5 else math.ceil(rank)
    return float(f"{ratios[min(max(place, 1), len(ratios)) - 1]:.6g}")
