"""Quantiles of whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

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
