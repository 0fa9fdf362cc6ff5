"""Packing and merging, for any turns of a lane."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.daemon.journal.turn_blocks import (
    CAUSES,
    LONGEST_US,
    TurnSpan,
    merged,
    one_turn,
    pack,
    together,
    unpack,
    within,
)

STEPS = st.tuples(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(1, 4), st.sampled_from(CAUSES))


def lane(steps: list[tuple[int, int, int, str]], begin_us: int = 1_700_000_000_000_000) -> list[TurnSpan]:
    """Turns one after the other, with pauses."""
    found = []
    for pause, length, job, cause in steps:
        begin_us += pause
        found += one_turn(begin_us, begin_us + length, job, cause)
        begin_us += length
    return found


LANES = st.lists(STEPS, max_size=60).map(lane)


@given(LANES)
def test_what_is_packed_comes_back(spans: list[TurnSpan]) -> None:
    assert list(unpack(pack(spans))) == spans
    assert len(pack(spans)) == 24 * len(spans)


@given(LANES, st.integers(1, 20_000), st.integers(0, 10_000))
def test_merging_keeps_sums_and_order(spans: list[TurnSpan], width_us: int, offset_us: int) -> None:
    begin_us = 1_700_000_000_000_000 + offset_us
    found = list(merged(spans, begin_us, width_us))
    assert sum(span.turns for span in found) == sum(span.turns for span in spans)
    assert sum(span.busy_us for span in found) == sum(span.busy_us for span in spans)
    assert all(left.end_us <= right.begin_us for left, right in pairwise(found))
    assert all(span.busy_us <= span.end_us - span.begin_us for span in found)
    places = [max(0, span.begin_us - begin_us) // width_us for span in found]
    assert len(set(places)) == len(places)
    if spans:
        assert (found[0].begin_us, found[-1].end_us) == (spans[0].begin_us, spans[-1].end_us)


@given(LANES, st.integers(1, 20_000))
def test_merged_again_is_the_same(spans: list[TurnSpan], width_us: int) -> None:
    once = list(merged(spans, 0, width_us))
    assert list(merged(once, 0, width_us)) == once


def test_the_job_with_most_time_stands_for_all() -> None:
    spans = [
        TurnSpan(0, 10, 7, 1, "boundary", 10),
        TurnSpan(10, 40, 5, 1, "early", 30),
        TurnSpan(50, 65, 7, 1, "left", 15),
    ]
    assert together(spans) == TurnSpan(0, 65, 5, 3, "left", 55)
    assert together(spans[:1]) == spans[0]


def test_a_turn_of_hours_is_one_turn_in_pieces() -> None:
    spans = list(one_turn(5, 5 + 3 * LONGEST_US, 1, "exit"))
    assert [span.turns for span in spans] == [1, 0, 0] and spans[-1].cause == "exit"
    assert sum(span.busy_us for span in spans) == 3 * LONGEST_US
    assert list(unpack(pack(merged(spans, 0, 1e12)))), "merging makes none that cannot be packed"


def test_spoilt_blocks_are_noticed() -> None:
    data = pack(lane([(0, 5, 1, "boundary")]))
    for spoilt in (data[:-1], b"\xff" * 24, data[:12] + b"\xff" * 4 + data[16:]):
        with pytest.raises(ValueError, match=r"."):
            list(unpack(spoilt))


def test_what_touches_a_stretch_only_is_outside() -> None:
    spans = lane([(0, 10, 1, ""), (0, 10, 2, "")], 0)
    assert [span.job for span in within(spans, 0, 10)] == [1]
    assert [span.job for span in within(spans, 9, 11)] == [1, 2]
