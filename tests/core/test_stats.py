"""The nearest rank: enough of the values, and never a number in between; percentiles: exact between neighbours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core.stats import PPM, percentile_s, quantile


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=40), st.integers(1, PPM))
def test_it_is_the_smallest_value_that_enough_of_them_do_not_exceed(values: list[int], share_ppm: int) -> None:
    found = quantile(values, share_ppm)
    assert found in values
    assert sum(value <= found for value in values) * PPM >= share_ppm * len(values)
    below = [value for value in values if value < found]
    assert len(below) * PPM < share_ppm * len(values)


def test_known_values() -> None:
    assert quantile(list(range(1, 21)), 950_000) == 19
    assert quantile([3, 1, 2], 950_000) == 3
    assert quantile([3, 1, 2], 500_000) == 2


@pytest.mark.parametrize(("values", "share_ppm"), [([], 500_000), ([1], 0), ([1], PPM + 1)])
def test_nonsense_is_refused(values: list[int], share_ppm: int) -> None:
    with pytest.raises(ValueError, match=r"quantile|share"):
        quantile(values, share_ppm)


def test_seconds_of_nothing_are_none() -> None:
    """`tests/sim/results/test_summary.py` compares percentiles with those of numpy."""
    assert percentile_s([], 50) is None
    assert percentile_s([1_000_000, 2_000_000], 50) == 1.5
