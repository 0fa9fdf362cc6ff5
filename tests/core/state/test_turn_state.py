"""The tables of a job's turn, of preemption and of residency: what is illegal is refused and changes nothing."""

from __future__ import annotations

import inspect
import re
import sys
from types import ModuleType

import pytest

from carpool.core import events
from carpool.core.events import IllegalTransition, InvariantError
from carpool.core.model import Cause, Memory, Outcome, Usage
from carpool.core.state.device import Lane
from carpool.core.state.seat_states import HOLDING, LeavingAside, PauseAsked, Paused, TurnState
from carpool.core.state.state import PrunedIds
from carpool.core.turns import turns, yielding
from carpool.core.turns.turns import TURNS
from tests.core.observed import WAYS, check
from tests.core.scenario import Scenario, estimate


@pytest.fixture
def pair(scenario: Scenario) -> Scenario:
    """Two jobs in one lane: the first has the turn, the second waits, and a third wants nothing."""
    scenario.start_each(1, 2, 3, estimate=estimate(10, 10))
    scenario.want_each(1, 2)
    states = [scenario.machine._state.jobs[job].turn.state for job in (1, 2, 3)]
    assert states == [TurnState.HOLDING, TurnState.WAITING, TurnState.IDLE]
    return scenario


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (events.TurnReleased(3, Cause.BOUNDARY, Usage()), "the job has no turn"),
        (events.TurnPassed(3, 1, Cause.BOUNDARY, Usage()), "the job has no turn"),
        (events.TurnPaused(3, Usage()), "the job has no turn"),
        (events.TurnPassed(2, 1, Cause.BOUNDARY, Usage()), "the job has no turn"),
        (events.TurnPaused(2, Usage()), "the job has no turn"),
        (events.TurnPassed(1, 9, Cause.BOUNDARY, Usage()), "there is no job 9"),
        (events.Offloaded(1), "the job was not asked for its memory"),
        (events.OffloadFailed(2, "no room"), "the job was not asked for its memory"),
    ],
)
def test_an_illegal_event_is_told_with_the_story_of_the_job_and_changes_nothing(
    pair: Scenario, event: events.TurnPaused, why: str
) -> None:
    before = pair.machine.view()
    with pytest.raises(IllegalTransition, match=rf"(?s){why}.*") as told:
        pair.send(event)
    assert pair.machine.view() == before
    assert "Attached" in str(told.value)


def test_a_job_may_have_had_a_turn_that_the_core_has_not_heard_of(pair: Scenario) -> None:
    """The holder passed it on; the one that got it is heard first."""
    pair.release(2)
    jobs = pair.machine._state.jobs
    assert [jobs[job].turn.state for job in (1, 2)] == [TurnState.HOLDING, TurnState.IDLE]
    with pytest.raises(IllegalTransition, match="the job has no turn"):
        pair.release(3)


def test_what_the_core_itself_does_wrong_is_a_defect() -> None:
    with pytest.raises(InvariantError, match="TurnReleased cannot come in the state idle"):
        TURNS.act(TurnState.IDLE, events.TurnReleased)


def test_every_state_has_a_row_and_can_be_left_and_reached() -> None:
    for ways in WAYS.values():
        states = {state for way in ways for state in way}
        assert all(any(a is state is not b for a, b in ways) for state in states), "no way leads on"
        assert all(any(b is state is not a for a, b in ways) for state in states), "no way leads there"


def test_a_way_that_no_table_has_is_noticed(pair: Scenario) -> None:
    job, lane = pair.machine._state.jobs[3], Lane(1, "host0", 0)
    check(job, "turn", HOLDING)
    with pytest.raises(AssertionError, match="no table leads from resident to leaving_aside"):
        check(job, "residency", LeavingAside(Memory(1, 0)))
    lane.preempt = Paused(5)
    with pytest.raises(AssertionError, match="no table leads from paused to asked_at_once"):
        lane.preempt = PauseAsked(5, 6, forced=True)


@pytest.mark.parametrize(("module", "function"), [(turns, "_chosen"), (yielding, "request_yield")])
def test_the_numbers_of_a_decision_list_stand_in_its_code(module: ModuleType, function: str) -> None:
    assert module.__doc__ is not None
    listed = re.findall(r"^(\d+)\. ", module.__doc__, re.MULTILINE)
    comments = re.findall(r"  # (\d[\d, ]*)", inspect.getsource(getattr(module, function)))
    assert len(listed) > 2 and [number for comment in comments for number in comment.split(", ")] == listed


# What the core still knows of jobs that ended long ago


def test_only_the_outcome_of_each_is_known() -> None:
    forgotten = PrunedIds()
    for number, outcome in enumerate(Outcome):
        forgotten.add(1000 + number, outcome)
        forgotten.add((1 << 40) + number, outcome)
    for number, outcome in enumerate(Outcome):
        assert forgotten.outcome(1000 + number) is outcome is forgotten.outcome((1 << 40) + number)
    assert 999 not in forgotten and 1000 in forgotten and forgotten.outcome(1 << 50) is None


def test_a_million_jobs_take_little_memory() -> None:
    forgotten = PrunedIds()
    for number in range(1_000_000):
        forgotten.add(number, Outcome.CANCELLED)
    assert sys.getsizeof(forgotten._pages) + sum(map(sys.getsizeof, forgotten._pages.values())) < 1_200_000
