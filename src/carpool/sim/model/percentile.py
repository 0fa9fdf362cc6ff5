"""Percentiles, exact in integers up to the last division."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.core.model import Micros

SECOND_US = 1_000_000


def percentile_s(ordered_us: Sequence[Micros], percent: int) -> float | None:
    """Seconds, from ascending microseconds; between two neighbours by linear interpolation (as numpy does)."""
    if not ordered_us:
        return None
    place, rest = divmod((len(ordered_us) - 1) * percent, 100)
    after = ordered_us[min(place + 1, len(ordered_us) - 1)]
    return (ordered_us[place] * (100 - rest) + after * rest) / (100 * SECOND_US)
