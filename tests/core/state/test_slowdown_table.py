"""The table of paces: what one observation can do to it, and what it can hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from carpool.core.state.slowdown_table import (
    ENOUGH_ITERATIONS,
    ENOUGH_US,
    FAR,
    FRESH_US,
    KEPT_ITERATIONS,
    KEPT_US,
    MOST_PAIRS,
    Pace,
    SlowdownTable,
)

SECOND = 1_000_000
stretches = st.lists(st.tuples(st.integers(0, 100 * SECOND), st.integers(1, 10_000)), min_size=1, max_size=60)


def made(*stretches: tuple[int, int]) -> Pace:
    pace = Pace()
    for total_us, iterations in stretches:
        pace.add(total_us, iterations)
    return pace


def test_a_figure_counts_from_eight_iterations_and_five_seconds_on() -> None:
    assert not made((7 * SECOND, 7)).enough
    assert not made((4_999_999, 1000)).enough
    assert made((5 * SECOND, 8)).enough


def test_the_mean_is_worth_a_minute_or_64_iterations() -> None:
    """Quick iterations: a minute.  Slow ones: 64.  Short sums are kept as they are."""
    assert made(*[(SECOND, 100)] * 200).iterations == KEPT_US // 10_000
    slow = made(*[(10 * SECOND, 1)] * 200)
    assert (slow.iterations, slow.total_us) == (KEPT_ITERATIONS, 640 * SECOND)
    assert made(*[(SECOND, 100)] * 3) == Pace(3 * SECOND, 300)


def test_one_observation_that_is_far_off_counts_as_twice_the_mean() -> None:
    """A process that is stopped for ten minutes in its 80 iterations of 2.5 ms: nearly nothing happens."""
    pace = made(*[(SECOND // 5, 80)] * 300)
    pace.add(600 * SECOND, 80)
    assert 2_500 < pace.total_us / pace.iterations < 2_510


def test_what_has_really_changed_becomes_the_figure() -> None:
    """Four times as slow from now on: within two minutes of observations."""
    pace = made(*[(SECOND // 5, 80)] * 300)
    for _ in range(600):
        pace.add(4 * SECOND // 5, 80)
    assert 9_900 < pace.total_us / pace.iterations <= 10_000
    for _ in range(3000):
        pace.add(SECOND // 5, 80)
    assert 2_500 <= pace.total_us / pace.iterations < 2_520


def test_slowdown_needs_both_figures_of_the_same_devices_of_this_week() -> None:
    paces, pair, alone = SlowdownTable(), ("m", "x", "y"), ("m", "x", "")
    paces.add(pair, 18 * SECOND, 100, 0)
    paces.add(("other", "x", ""), 10 * SECOND, 100, 0)
    assert paces.slowdown_ppm(pair, 0) is None
    paces.add(alone, 10 * SECOND, 100, SECOND)
    assert paces.slowdown_ppm(pair, FRESH_US) == 1_800_000
    assert paces.slowdown_ppm(("m", "y", "x"), 0) is None
    assert paces.slowdown_ppm(pair, FRESH_US + 1) is None
    paces.add(pair, 18 * SECOND, 100, FRESH_US)
    assert paces.slowdown_ppm(pair, FRESH_US + SECOND) == 1_800_000
    assert paces.slowdown_ppm(pair, FRESH_US + SECOND + 1) is None


def test_the_table_holds_the_pairs_that_were_measured_last() -> None:
    paces = SlowdownTable()
    for number in range(MOST_PAIRS + 5):
        paces.add(("m", "x", str(number)), 1, 1, number)
        paces.add(("m", "x", "0"), 1, 1, number)
    kept = [pair for pair, _ in paces.rows()]
    assert len(kept) == MOST_PAIRS and kept[:2] == [("m", "x", "0"), ("m", "x", str(MOST_PAIRS + 4))]
    assert kept[-1] == ("m", "x", "6")
    paces.known(("m", "x", "6"), 2, 2, 0)
    pair, pace = next(iter(paces.rows()))
    assert pair == ("m", "x", "6") and pace.total_us == 2, "what an earlier table knew takes the place"


@given(stretches)
def test_the_mean_lies_among_what_was_seen_and_its_weight_is_bounded(seen: list[tuple[int, int]]) -> None:
    pace, means = Pace(), [total / count for total, count in seen]
    for total, count in seen:
        pace.add(total, count)
        assert pace.iterations >= 1 and pace.total_us >= 0
        assert pace.iterations <= KEPT_ITERATIONS or pace.total_us <= KEPT_US + pace.total_us // pace.iterations
    # What is far off is pulled towards the mean, which may take it beyond what was seen by rounding only.
    assert min(means) - 1 <= pace.total_us / pace.iterations <= max(means) + 1


@given(stretches, st.integers(0, 10**12), st.integers(1, 10_000))
def test_no_single_observation_moves_a_figure_by_more_than_its_factor(
    seen: list[tuple[int, int]], total: int, count: int
) -> None:
    pace = made(*seen)
    if not pace.enough:
        return
    before = pace.total_us / pace.iterations
    pace.add(total, count)
    assert before / FAR - 1 <= pace.total_us / pace.iterations <= before * FAR + 1
    assert pace.iterations >= ENOUGH_ITERATIONS and pace.total_us >= ENOUGH_US // FAR
