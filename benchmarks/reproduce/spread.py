"""Many seeds: the median, and how far the middle half of them lies apart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from benchmarks.reproduce.runs import Data


def spread(values: Sequence[float]) -> Data:
    """Median, quartiles and range."""
    if len(values) == 1:
        low = high = values[0]
    else:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {
        "median": round(statistics.median(values), 3),
        "quartiles": [round(low, 3), round(high, 3)],
        "range": [round(min(values), 3), round(max(values), 3)],
    }


def shown(data: Data, digits: int = 1) -> str:
    """``52.7 (50.1 to 55.0)``: the median and the quartiles."""
    low, high = data["quartiles"]
    return f"{data['median']:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def crossing(points: Sequence[tuple[float, float]], level: float) -> float | None:
    """Where a falling line through (x, y) first comes down to ``level``; None: nowhere."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 >= level >= y1 and y0 > y1:
            return round(x0 + (x1 - x0) * (y0 - level) / (y0 - y1), 3)
    return None
