from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from carpool.serve.queue.running_median import FRESH_US, MOST, Recent


def test_a_few_extreme_values_do_not_matter() -> None:
    recent = Recent()
    assert recent.typical(0) == 0
    for now, value in enumerate([10, 11, 500_000, 12, 1]):
        recent.add(value, now)
    assert recent.typical(4) == 11


def test_old_values_count_no_more() -> None:
    recent = Recent()
    recent.add(300, 0)
    recent.add(10, 1)
    assert recent.typical(FRESH_US) == 10, "of two the lower one"
    assert recent.typical(FRESH_US + 1) == 10
    assert recent.typical(FRESH_US + 2) == 0


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_it_is_one_of_the_last_values(values: list[int]) -> None:
    recent = Recent()
    for value in values:
        recent.add(value, 0)
    last = sorted(values[-MOST:])
    assert recent.typical(0) == last[(len(last) - 1) // 2]
