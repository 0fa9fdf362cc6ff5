from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.dashboard.timeline import MOST_PIXELS, Stretch, TimelineBlock, thinned

TIMES = st.tuples(st.integers(0, 10_000), st.integers(0, 500))


@given(st.lists(st.tuples(st.integers(1, 3), TIMES), max_size=200), st.integers(1, 50))
def test_at_most_one_block_begins_in_a_pixel_of_a_job_and_none_is_lost(
    found: list[tuple[int, tuple[int, int]]], width: int
) -> None:
    stretch = Stretch(0, 10_001, width)
    blocks = [TimelineBlock("host0", job, begin, begin + length, "moves", "") for job, (begin, length) in found]
    kept = list(thinned(blocks, stretch))
    pixels = [(block.job, block.begin_us * width // 10_001) for block in kept]
    assert len(set(pixels)) == len(pixels) <= 3 * width
    for block in blocks:
        assert any(
            one.job == block.job and one.begin_us <= block.begin_us and one.end_us >= block.end_us for one in kept
        )


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"since_us": "0", "until_us": "0", "width": "10"},
        {"since_us": "x", "until_us": "1", "width": "10"},
        {"since_us": "0", "until_us": "1", "width": "0"},
        {"since_us": "0", "until_us": "1", "width": str(MOST_PIXELS + 1)},
        {"since_us": "-1", "until_us": "1", "width": "1"},
    ],
)
def test_impossible_stretches_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Stretch.of(query)


def test_a_stretch_is_read() -> None:
    assert Stretch.of({"since_us": "5", "until_us": "9", "width": "100"}) == Stretch(5, 9, 100)
