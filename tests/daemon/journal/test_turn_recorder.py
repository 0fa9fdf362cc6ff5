"""The daemon's history of turns says what the timeline says, which is made of the same events."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import Cause, JobPhase, Memory, Outcome, Usage
from carpool.daemon.journal.recorded_lane import BLOCK_TURNS, NOBODY, TurnBlock
from carpool.daemon.journal.turn_blocks import CAUSES
from carpool.daemon.journal.turn_recorder import TurnRecorder
from carpool.protocol.api import EventInfo
from carpool.timeline.marks import Begin, End
from tests.corpus.journals import names, read
from tests.timeline.recorded import EPOCH_US, followed
from tests.timeline.recorded import events as recorded

KINDS = {kind.__name__: kind for kind in (*get_args(Event), *get_args(Command))}
Turn = tuple[str, int, int, int, int]
DAY = 86_400_000_000


class Recorded:
    """``ahead_us``: what the wall clock is ahead of the core's."""

    def __init__(self) -> None:
        self.blocks: list[TurnBlock] = []
        self.ahead_us = EPOCH_US
        self.recorder = TurnRecorder({1: 5, 2: 5}.get, self.blocks.append, lambda: self.ahead_us)

    def at(self, now_us: int, *happened: Event | Command) -> None:
        for each in happened:
            self.recorder.happened(now_us, each)

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
    made.at(0, commands.OpenLane(3, "host0", 5, 64), commands.OpenLane(4, "host0", NOBODY, 64))
    return made


def adopted(job: int, **changes: bool) -> events.Adopted:
    places = {"device": "host0", "lane": 3, "granted": Memory(), "attached": True}
    state = {"holds_turn": True, "wants_turn": False, "offloaded": False, "usage": Usage(), "started_us": 0}
    return events.Adopted(job, JobPhase.RUNNING, **places, **state | changes)  # type: ignore[arg-type]


def of_timeline(name: str) -> list[Turn]:
    """Turns of the tracks of lanes, whose events are said to have been recorded at once."""
    found, begun = [], dict[object, Begin]()
    for mark in followed([event_at_once(event) for event in recorded(name)]):
        if isinstance(mark, Begin) and mark.track.name.startswith("lane "):
            begun[mark.track] = mark
        elif isinstance(mark, End) and mark.track in begun:
            begin = begun.pop(mark.track)
            since, until = (each.time_ns // 1000 - EPOCH_US for each in (begin, mark))
            found.append((mark.track.device, int(mark.track.name.split()[1]), since, until, begin.job or 0))
    return sorted(found)


def event_at_once(event: EventInfo) -> EventInfo:
    return msgspec.structs.replace(event, time_us=EPOCH_US + event.now_us)


@pytest.mark.parametrize("name", names())
def test_turns_of_recorded_journals_are_those_of_the_timeline(name: str) -> None:
    history = Recorded()
    for row in read(name).rows:
        history.at(row.now_us, msgspec.json.decode(row.data, type=KINDS[row.kind]))
    history.recorder.write()
    assert sorted(history.turns()) == of_timeline(name)


def test_how_turns_end(history: Recorded) -> None:
    usage = Usage()
    history.at(1, commands.GrantTurn(3, 1))
    history.at(3, events.TurnPassed(1, 2, Cause.EARLY, usage))
    history.at(6, events.TurnReleased(2, Cause.BOUNDARY, usage))
    history.at(7, commands.GrantTurn(3, 1), events.TurnPaused(1, usage))
    for each in (events.Detached(1), commands.EndJob(1, Outcome.SUCCEEDED)):
        history.at(8, commands.GrantTurn(3, 1))
        history.at(9, each)
    history.at(10, commands.GrantTurn(3, 1))
    history.at(12, commands.CloseLane(3))
    words = ["early", "boundary", "paused", "left", "ended", "unknown"]
    assert history.causes() == words
    times = [(1, 3, 1), (3, 6, 2), (7, 7, 1), (8, 9, 1), (8, 9, 1), (10, 12, 1)]
    assert history.turns() == [("host0", 3, *each) for each in times]
    assert {block.owner for block in history.blocks} == {5}


def test_what_goes_on_is_shown_and_ends_with_the_daemon(history: Recorded) -> None:
    history.at(5, adopted(1))
    history.at(8, events.Tick())
    (block, _) = history.recorder.present(20)
    assert [(span.end_us - span.begin_us, CAUSES[span.cause]) for span in block.spans] == [(15, "")]
    history.recorder.close()
    assert history.turns() == [("host0", 3, 5, 8, 1)] and history.causes() == ["unknown"]


def test_a_job_that_was_found_paused_does_not_compute(history: Recorded) -> None:
    history.at(5, adopted(1, paused=True))
    history.at(9, commands.GrantTurn(3, 1))
    history.at(11, events.TurnReleased(1, Cause.BOUNDARY, Usage()))
    history.recorder.close()
    assert history.turns() == [("host0", 3, 9, 11, 1)]


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
    history.recorder.close()
    assert history.turns() == [("host0", 3, 1, 4, 1), ("host0", 3, 6 + moved, 7 + moved, 1)]


def test_a_lane_without_a_known_owner_is_its_jobs_users(history: Recorded) -> None:
    history.at(1, adopted(1), commands.StartJob(2, "host0", 9), commands.GrantTurn(9, 2))
    history.recorder.close()
    assert {(block.lane, block.owner) for block in history.blocks} == {(3, 5), (9, 5)}
