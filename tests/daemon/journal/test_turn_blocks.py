"""Turns in blocks and in bins: what is packed comes out again, and merging loses no turn and no time."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import Cause, JobSpec, Usage
from carpool.daemon.journal.turn_blocks import CAUSES, TURN_BYTES, LaneBins, SpoiltBlock, TurnSpan, pack, unpack
from carpool.daemon.journal.turns import BLOCK_TURNS, TurnBlock, TurnRecorder
from carpool.facts.fold import FactFeed
from tests.timeline.recorded import EPOCH_US

START = 1_790_000_000_000_000
LENGTHS = st.one_of(st.integers(0, 50), st.integers(0, 10_000_000), st.integers(0, 10**12))


@st.composite
def lanes(draw: st.DrawFn, merged: bool = False) -> list[TurnSpan]:
    """Turns of one lane, one after the other."""
    found, at = [], START
    rows = st.tuples(LENGTHS, LENGTHS, st.integers(1, 2**53), st.integers(1, 9), st.integers(0, len(CAUSES) - 1))
    for gap, length, job, turns, cause in draw(st.lists(rows, max_size=40)):
        busy = draw(st.integers(0, length)) if merged else length
        found.append(TurnSpan(at + gap, at + gap + length, job, turns if merged else 1, cause, busy))
        at += gap + length
    return found


def binned(spans: list[TurnSpan], width: int, since: int = 0, until: int | None = None) -> list[TurnSpan]:
    bins = LaneBins(since, width, until)
    bins.add(spans)
    return bins.spans()


def check_order(spans: list[TurnSpan]) -> None:
    for before, after in pairwise(spans):
        assert before.begin_us <= before.end_us <= after.begin_us


@given(lanes())
def test_turns_come_out_as_they_went_in(spans: list[TurnSpan]) -> None:
    assert unpack(pack(spans, START, merged=False), START, merged=False) == spans


@given(lanes(merged=True))
def test_merged_turns_do_too(spans: list[TurnSpan]) -> None:
    assert unpack(pack(spans, START, merged=True), START, merged=True) == spans


@given(st.one_of(st.binary(), lanes().map(lambda spans: pack(spans, START, merged=False)[:-1])))
def test_other_bytes_are_no_block(data: bytes) -> None:
    with pytest.raises(SpoiltBlock):
        unpack(data, START, merged=False)


def test_turns_that_overlap_are_no_block() -> None:
    data = pack(
        [TurnSpan(START, START + 9, 1, 1, 2, 9), TurnSpan(START + 5, START + 8, 1, 1, 2, 3)], START, merged=False
    )
    with pytest.raises(SpoiltBlock, match="cannot have been"):
        unpack(data, START, merged=False)


def test_a_turn_takes_few_bytes() -> None:
    assert TURN_BYTES <= 24


@given(lanes(merged=True), st.integers(1, 10**10))
def test_merging_keeps_all_turns_and_all_time(spans: list[TurnSpan], width: int) -> None:
    found = binned(spans, width)
    check_order(found)
    assert sum(span.busy_us for span in found) == sum(span.busy_us for span in spans)
    assert sum(span.turns for span in found) == sum(span.turns for span in spans)
    assert max(Counter(span.begin_us // width for span in found).values(), default=0) <= 1
    assert (found[0].begin_us, found[-1].end_us) == (spans[0].begin_us, spans[-1].end_us) if spans else not found
    for span in found:
        mine = [each for each in spans if span.begin_us <= each.begin_us and each.end_us <= span.end_us]
        times = Counter[int]()
        for each in mine:
            times[each.job] += each.busy_us
        assert times[span.job] == max(times.values()) and span.cause in {each.cause for each in mine}


@given(lanes(), st.integers(1, 4000), st.integers(-(10**9), 10**9), st.integers(1, 10**11))
def test_an_answer_has_no_more_than_so_many_bins(spans: list[TurnSpan], bins: int, after: int, span_us: int) -> None:
    since, until = START + after, START + after + span_us
    width = -(-span_us // bins)
    found = binned(spans, width, since, until)
    check_order(found)
    assert len(found) <= bins
    inside = [each for each in spans if each.begin_us < until and (each.end_us > since or each.begin_us >= since)]
    assert sum(span.turns for span in found) == len(inside)


@given(lanes(), st.integers(1, 10**8), st.integers(1, 100))
def test_merging_twice_is_merging_once(spans: list[TurnSpan], width: int, factor: int) -> None:
    """But for the job: of a merged span only the one with most time is known."""
    once, twice = binned(spans, width * factor), binned(binned(spans, width), width * factor)
    assert [span._replace(job=0) for span in once] == [span._replace(job=0) for span in twice]


@given(lanes(), lanes(), st.integers(-(10**7), 10**7), st.integers(1, 10**7))
def test_after_the_clock_was_set_back_what_was_recorded_later_counts(
    earlier: list[TurnSpan], later: list[TurnSpan], moved: int, width: int
) -> None:
    later = [span._replace(begin_us=span.begin_us + moved, end_us=span.end_us + moved) for span in later]
    found = binned([*earlier, *later], width)
    check_order(found)
    assert all(span.busy_us <= span.end_us - span.begin_us for span in found)
    if later:
        assert found[-1].end_us == later[-1].end_us


# Blocks of turns by the wall clock, of the facts that a daemon tells


Turn = tuple[str, int, int, int, int]
DAY = 86_400_000_000


class Recorded:
    """``ahead_us``: what the wall clock is ahead of the core's."""

    def __init__(self) -> None:
        self.blocks: list[TurnBlock] = []
        self.ahead_us = EPOCH_US
        self.recorder = TurnRecorder(self.blocks.append, lambda: self.ahead_us)
        self.facts = FactFeed(self.recorder.take)

    def at(self, now_us: int, *happened: Event | Command) -> None:
        for each in happened:
            self.facts.happened(now_us, each)

    def close(self) -> None:
        self.facts.close()
        self.recorder.write()

    def turns(self) -> list[Turn]:
        return [
            (block.device, block.lane, span.begin_us - EPOCH_US, span.end_us - EPOCH_US, span.job)
            for block in self.blocks
            for span in block.spans
        ]

    def causes(self) -> list[str]:
        return [CAUSES[span.cause] for block in self.blocks for span in block.spans]


@pytest.fixture
def history() -> Recorded:
    made = Recorded()
    made.at(0, commands.OpenLane(3, "host0", 5, 64), commands.OpenLane(4, "host0", 5, 64))
    return made


def test_turns_have_their_times_their_causes_and_the_lanes_owner(history: Recorded) -> None:
    history.at(1, commands.GrantTurn(3, 1))
    history.at(3, events.TurnPassed(1, 2, Cause.EARLY, Usage()))
    history.at(6, events.TurnReleased(2, Cause.BOUNDARY, Usage()))
    history.recorder.write()
    assert history.turns() == [("host0", 3, 1, 3, 1), ("host0", 3, 3, 6, 2)]
    assert history.causes() == ["early", "boundary"]
    assert {block.owner for block in history.blocks} == {5}


def test_what_goes_on_is_shown_and_ends_with_the_daemon(history: Recorded) -> None:
    history.at(5, commands.GrantTurn(3, 1))
    history.at(8, events.Tick())
    (block,) = history.recorder.present(20)
    assert [(span.end_us - span.begin_us, CAUSES[span.cause]) for span in block.spans] == [(15, "")]
    history.close()
    assert history.turns() == [("host0", 3, 5, 8, 1)] and history.causes() == ["unknown"]


def test_a_block_is_written_when_it_is_full(history: Recorded) -> None:
    for at in range(BLOCK_TURNS + 5):
        history.at(10 * at, commands.GrantTurn(3, 1))
        history.at(10 * at + 5, events.TurnReleased(1, Cause.BOUNDARY, Usage()))
    assert [len(block.spans) for block in history.blocks] == [BLOCK_TURNS]
    history.recorder.write()
    assert [len(block.spans) for block in history.blocks] == [BLOCK_TURNS, 5]


@pytest.mark.parametrize("moved", [-DAY, DAY])
def test_what_happened_before_the_clock_was_set_keeps_its_time(history: Recorded, moved: int) -> None:
    history.at(1, commands.GrantTurn(3, 1))
    history.at(4, events.TurnReleased(1, Cause.BOUNDARY, Usage()))
    history.ahead_us += moved
    history.at(6, commands.GrantTurn(3, 1))
    history.at(7, events.TurnReleased(1, Cause.BOUNDARY, Usage()))
    history.close()
    assert history.turns() == [("host0", 3, 1, 4, 1), ("host0", 3, 6 + moved, 7 + moved, 1)]


def test_a_lane_without_a_known_owner_is_its_jobs_users(history: Recorded) -> None:
    history.at(1, events.Submitted(2, JobSpec(6)), commands.StartJob(2, "host0", 9), commands.GrantTurn(9, 2))
    history.close()
    assert {(block.lane, block.owner) for block in history.blocks} == {(9, 6)}


def test_a_lane_without_turns_is_not_kept(history: Recorded) -> None:
    history.at(1, commands.GrantTurn(3, 1), commands.CloseLane(3))
    history.recorder.write()
    assert history.recorder.present(2) == []
