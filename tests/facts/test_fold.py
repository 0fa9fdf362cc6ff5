"""The fold against what recorded journals tell, and events that begin in the middle."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from carpool.core import commands, events
from carpool.core.model import Cause, JobSpec, Memory, MemoryClass, Outcome, Reason, Usage
from carpool.facts.fact import Fact, MemoryLevel, Told, What
from carpool.facts.fold import Fold
from carpool.sim.replay import COMMANDS, EVENTS
from tests.corpus.journals import names, read

#: The turns of the journal `services` as the recorder before the fold made them: device, lane, owner, job, times, how.
RECORDED = Path(__file__).with_name("turns-of-services.json")


def told(fold: Fold, now_us: int, *happened: events.Event | commands.Command) -> list[Told]:
    return [one for each in happened for one in fold.happened(now_us, each)]


def facts(found: Iterable[Told], what: str) -> list[tuple[int, int | None, int | None, str]]:
    """Job, begin, end, and how it ended, of one kind."""
    return [(one.job, one.start_us, one.end_us, one.how) for one in found if isinstance(one, Fact) and one.what == what]


def whole(name: str) -> list[Told]:
    fold = Fold()
    found = [
        one
        for row in read(name).rows
        for one in fold.happened(row.now_us, msgspec.json.decode(row.data, type=(EVENTS | COMMANDS)[row.kind]))
    ]
    return [*found, *fold.lost()]


def turns(name: str) -> list[list[object]]:
    ended = [one for one in whole(name) if isinstance(one, Fact) and one.what == What.TURN and one.end_us is not None]
    rows = [[one.device, one.lane, one.owner, one.job, one.start_us, one.end_us, str(one.how)] for one in ended]
    return [row for row in rows if row[4] is not None]


def test_turns_of_a_journal_are_as_they_were_recorded() -> None:
    assert turns("services") == json.loads(RECORDED.read_text())


@pytest.mark.parametrize("name", names())
def test_each_fact_ends_once_and_turns_of_a_lane_do_not_overlap(name: str) -> None:
    open_: dict[tuple[str, int], Fact] = {}
    lanes: dict[int, int] = {}
    for one in whole(name):
        if not isinstance(one, Fact):
            continue
        if one.end_us is None:
            assert open_.setdefault((one.what, one.job), one) is one
        elif one.start_us is not None:
            begun = open_.pop((one.what, one.job))
            assert (begun.start_us, begun.lane, begun.device) == (one.start_us, one.lane, one.device)
            if one.what == What.TURN and one.lane is not None:
                assert lanes.get(one.lane, 0) <= one.start_us <= one.end_us
                lanes[one.lane] = one.end_us
    assert open_ == {}


def test_a_turn_and_the_wait_before_it() -> None:
    fold = Fold()
    found = told(fold, 1, events.TurnWanted(1), commands.OpenLane(3, "gpu0", 5, 64))
    found += told(fold, 2, events.TurnWanted(1, urgent=True))  # the same wish
    found += told(fold, 4, commands.GrantTurn(3, 1))
    found += told(fold, 9, events.TurnReleased(1, Cause.BOUNDARY, Usage(residue=7)))
    assert facts(found, What.WAITS) == [(1, 1, None, ""), (1, 1, 4, "turn")]
    assert facts(found, What.TURN) == [(1, 4, None, ""), (1, 4, 9, "boundary")]
    *_, last = found
    assert isinstance(last, Fact) and (last.device, last.lane, last.owner) == ("gpu0", 3, 5)
    assert last.usage == Usage(residue=7) and last.lasted_us == 5


def test_how_turns_end() -> None:
    fold, found = Fold(), []
    for happened in (
        *(events.TurnPassed(1, 2, Cause.EARLY, Usage()), events.TurnPaused(1, Usage()), events.Detached(1)),
        *(commands.EndJob(1, Outcome.SUCCEEDED), commands.CloseLane(3), events.RestartBegan()),
    ):
        told(fold, 1, commands.GrantTurn(3, 1))
        found += told(fold, 2, happened)
    ends = [how for job, _, end, how in facts(found, What.TURN) if job == 1 and end is not None]
    assert ends == ["early", "paused", "left", "ended", "unknown", "unknown"]


def test_a_pause_lasts_until_the_turn_goes_on_or_is_given_back() -> None:
    fold = Fold()
    found = told(fold, 1, commands.GrantTurn(3, 1))
    found += told(fold, 2, events.TurnPaused(1, Usage()))
    found += told(fold, 5, commands.GrantTurn(3, 1))
    found += told(fold, 6, events.TurnPaused(1, Usage()))
    found += told(fold, 8, events.TurnReleased(1, Cause.FORCED, Usage()))
    assert facts(found, What.PAUSE) == [(1, 2, None, ""), (1, 2, 5, "turn"), (1, 6, None, ""), (1, 6, 8, "forced")]
    assert facts(found, What.TURN)[-1] == (1, None, 8, "forced"), "what a paused holder gives back is told, too"


def test_events_that_begin_in_the_middle_tell_ends_without_beginnings() -> None:
    fold = Fold()
    found = told(fold, 3, events.TurnPassed(1, 2, Cause.BOUNDARY, Usage()), events.Offloaded(1))
    found += told(fold, 4, commands.GrantMemory(1, Memory(9), MemoryClass.PERSISTENT))
    assert facts(found, What.TURN) == [(1, None, 3, "boundary"), (2, 3, None, "")]
    assert facts(found, What.MOVE) == [(1, None, 3, "moved")]
    assert facts(found, What.PERSISTENT) == [(1, None, 4, "granted")]
    assert found[-1] == MemoryLevel("", 1, None, 9)


def test_requests_and_moves_end_with_their_answers() -> None:
    fold = Fold()
    found = told(fold, 1, *(events.MemoryRequested(job, MemoryClass.EPHEMERAL, 8) for job in (1, 2, 3, 4)))
    found += told(fold, 2, commands.GrantMemory(1, Memory(0, 8), MemoryClass.EPHEMERAL))
    found += told(fold, 3, commands.DenyMemory(2, MemoryClass.EPHEMERAL, Reason("x", "full")))
    found += told(fold, 4, events.RequestWithdrawn(3, MemoryClass.EPHEMERAL), events.Detached(4))
    ended = [(job, end, how) for job, _, end, how in facts(found, What.EPHEMERAL) if end is not None]
    assert ended == [(1, 2, "granted"), (2, 3, "denied"), (3, 4, "withdrawn"), (4, 4, "left")]
    moves = told(fold, 5, commands.Offload(1), events.OffloadFailed(1, "no room"))
    assert isinstance(moves[-1], Fact) and (moves[-1].how, moves[-1].text) == ("not moved", "no room")


def test_what_is_lost_ends_with_the_last_event() -> None:
    fold = Fold()
    told(fold, 1, events.Submitted(1, JobSpec(5)), commands.GrantTurn(3, 1))
    told(fold, 7, events.Tick())
    lost = told(fold, 900, events.RestartBegan())
    assert facts(lost, What.TURN) == [(1, 1, 7, "unknown")] and facts(lost, What.QUEUED) == [(1, 1, 7, "unknown")]
    assert fold.lost() == ()


def test_jobs_and_lanes_that_are_over_leave_nothing() -> None:
    fold = Fold()
    for job in range(100):
        told(fold, job, events.Submitted(job, JobSpec(5)), commands.OpenLane(job, "gpu0", 5, 64))
        told(fold, job, commands.StartJob(job, "gpu0", job), commands.GrantTurn(job, job))
        told(fold, job, commands.EndJob(job, Outcome.SUCCEEDED), commands.CloseLane(job), events.Detached(job))
    assert fold._jobs == {} and fold._lanes == {}
