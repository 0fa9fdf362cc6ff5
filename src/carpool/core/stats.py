"""Quantiles of whole numbers, in the two ways that statistics calls one: the nearest rank, and between neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.core.model import Micros
from carpool.core.units import SECOND_US

PPM = 1_000_000


def quantile(values: Sequence[int], share_ppm: int) -> int:
    """The nearest rank: the smallest of ``values`` that at least this share of them does not exceed.

    Never a number in between, so that a few runs give their largest.  Raises ValueError without values, or for a share
    that is not above 0 and at most 1,000,000.
    """
    if not values:
        raise ValueError("a quantile of nothing")
    if not 0 < share_ppm <= PPM:
        raise ValueError(f"a share of {share_ppm} parts per million is not above 0 and at most {PPM}")
    return sorted(values)[-(-len(values) * share_ppm // PPM) - 1]


def percentile_x100(ordered: Sequence[int], percent: int) -> int:
    """A hundred times the percentile of ascending values, interpolated linearly between neighbours (numpy's way).

    The factor keeps it a whole number, so that callers choose how to round.  ``ordered``: at least one value.
    ``percent``: 0 to 100.
    """
    place, rest = divmod((len(ordered) - 1) * percent, 100)
    after = ordered[min(place + 1, len(ordered) - 1)]
    return ordered[place] * (100 - rest) + after * rest


def percentile_s(ordered_us: Sequence[Micros], percent: int) -> float | None:
    """`percentile_x100` of ascending microseconds, in seconds; None without values."""
    return percentile_x100(ordered_us, percent) / (100 * SECOND_US) if ordered_us else None
