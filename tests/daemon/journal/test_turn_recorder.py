"""Blocks of turns by the wall clock, of the facts that a daemon tells."""

from __future__ import annotations

import pytest

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import Cause, JobSpec, Usage
from carpool.daemon.journal.turn_blocks import CAUSES
from carpool.daemon.journal.turns import BLOCK_TURNS, TurnBlock, TurnRecorder
from carpool.facts.fold import FactFeed
from tests.timeline.recorded import EPOCH_US

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
