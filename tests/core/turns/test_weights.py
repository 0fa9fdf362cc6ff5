"""Weights of services: which are kept on a device, and how room is made for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core import events
from carpool.core.commands import (
    DenyMemory,
    DenyTurn,
    DropWeights,
    EndJob,
    GrantMemory,
    GrantTurn,
    Offload,
    RequestYield,
)
from carpool.core.model import MIB, Cause, JobPhase, Memory, Oversubscribe
from carpool.core.state.device import Weights
from carpool.core.turns.weights import HALF_LIFE_US, ONE_WANT, rate, worth
from tests.core.scenario import E, P, Scenario, estimate, one_device, only
from tests.core.service_steps import demand, dropped, fill, paused, place, train, worker

times = st.integers(0, 20 * HALF_LIFE_US)


@pytest.fixture
def crowded() -> Scenario:
    """One device of 1000 MiB that may be oversubscribed."""
    return one_device(oversubscribe=Oversubscribe.AUTO)


def rated(value: int, when: int = 0) -> Weights:
    return Weights(0, "a", 10 * MIB, 1000, 1, rate=value, rated_us=when)


@given(value=st.integers(0, 1000 * ONE_WANT), early=times, late=times)
def test_the_rate_only_falls_and_is_halved_every_half_life(value: int, early: int, late: int) -> None:
    early, late = sorted((early, late))
    weights = rated(value)
    assert 0 <= rate(weights, late) <= rate(weights, early) <= value
    assert abs(rate(weights, early + HALF_LIFE_US) - rate(weights, early) // 2) <= 1


def test_wants_of_long_ago_are_forgotten_and_weights_of_no_bytes_are_worth_something() -> None:
    assert rate(rated(1000 * ONE_WANT), 40 * HALF_LIFE_US) == 0
    weights = rated(ONE_WANT)
    weights.size = 0
    assert worth(weights, 0) > 0


def test_what_is_worth_least_goes_first(scenario: Scenario) -> None:
    """Reload cost x rate per byte: b was wanted twice, c is dear to reload."""
    worker(scenario, 1)
    fill(scenario, "a", "b", "b")
    scenario.want(1, demand=demand("c", reload_ms=100))
    scenario.release(1)
    assert dropped(scenario.want(1, demand=demand("d", 450))) == ["a"]
    scenario.release(1)
    assert dropped(scenario.want(1, demand=demand("e", 800))) == ["d", "b"]


def test_what_was_wanted_long_ago_is_worth_less(scenario: Scenario) -> None:
    worker(scenario, 1)
    fill(scenario, "a", "a", "b")
    scenario.at(100_000)
    fill(scenario, "b")
    assert dropped(scenario.want(1, demand=demand("c", 700))) == ["a"]


def test_weights_leave_before_anybody_waits(scenario: Scenario) -> None:
    worker(scenario, 1)
    fill(scenario, "a", "b", "c")
    scenario.start(2, owner=5, estimate=estimate(350, 100))
    assert scenario.machine.view().devices["host0"].weights == 400 * MIB
    assert scenario.job(2).phase is JobPhase.RUNNING
    following = scenario.ask(2, P, 600)
    assert dropped(following) == ["b"]
    assert GrantMemory in map(type, following)
    assert scenario.send(events.ForeignMemory("host0", 300 * MIB)) == [DropWeights("host0", 0, "c")]


def test_weights_leave_before_memory_of_others_does(crowded: Scenario) -> None:
    worker(crowded, 1)
    train(crowded, 2, persistent=300)
    crowded.release(2)
    fill(crowded, "a")
    assert crowded.want(1, demand=demand("b", 500)) == [
        DropWeights("host0", 0, "a"),
        place("b", 1, 500),
        GrantTurn(1, 1),
    ]


def test_weights_in_use_stay(scenario: Scenario) -> None:
    """Requests wait until the turn is over, and are met then."""
    worker(scenario, 1)
    scenario.want(1, demand=demand("a", 700))
    scenario.start(2, estimate=estimate(0, 0))
    assert scenario.ask(2, P, 400) == []
    following = scenario.release(1)
    assert following[0] == DropWeights("host0", 0, "a") and following[1].answers is P  # type: ignore[union-attr]


def test_weights_that_are_promised_stay_also_for_whom_comes_first(scenario: Scenario) -> None:
    """They are being copied.  The later want, whose deadline is earlier, waits for them."""
    train(scenario, 1)
    worker(scenario, 2)
    worker(scenario, 3)
    scenario.want(2, demand=demand("a", 300, by=900))
    assert dropped(scenario.want(3, demand=demand("b", 400, by=500))) == []
    assert scenario.why(3).startswith("waiting for memory: needs 400 MiB with its weights, free ")
    assert paused(scenario, 1) == [GrantTurn(2, 2)]
    assert scenario.release(2) == [DropWeights("host0", 0, "a"), place("b", 3, 400), GrantTurn(2, 3)]


def test_no_other_is_promised_weights_while_the_first_waits_for_those_in_use(scenario: Scenario) -> None:
    """Two owners: otherwise one of them could keep the other waiting for ever, with what is on the device anyway."""
    for job, owner in ((1, 0), (2, 0), (3, 1)):
        worker(scenario, job, owner, mib=0)
    fill(scenario, "a", mib=500)
    scenario.want(1, demand=demand("a", 500))
    assert scenario.want(3, demand=demand("b", 600)) == []
    assert scenario.want(2, demand=demand("a", 500)) == []
    assert place("b", 3, 600, owner=1) in scenario.release(1)


def test_others_leave_for_weights_and_the_paused_save_what_they_have(crowded: Scenario) -> None:
    train(crowded, 1, persistent=700)
    worker(crowded, 2, mib=0)
    worker(crowded, 3, owner=4, mib=0)
    crowded.want(3)
    assert paused(crowded, 1) == [GrantTurn(3, 3)]
    assert crowded.want(2, demand=demand("large", 600)) == [RequestYield(1, forced=True)]
    assert crowded.release(3) == [], "it saves, and nothing is asked of it any more"
    assert crowded.release(1, cause=Cause.FORCED) == [Offload(1)]
    following = crowded.send(events.Offloaded(1))
    assert place("large", 2, 600) in following and GrantTurn(2, 2) in following
    crowded.want(1)
    assert GrantTurn(1, 1) in crowded.release(2), "its memory is back, and the weights have gone for it"


def test_a_running_job_is_asked_for_its_turn_where_a_service_needs_its_memory(crowded: Scenario) -> None:
    train(crowded, 1, persistent=700)
    worker(crowded, 2, mib=0)
    assert crowded.want(2, demand=demand("large", 600)) == [RequestYield(1)]
    assert crowded.at(20).last == [RequestYield(1, forced=True)]
    assert Offload(1) in crowded.release(1)


def test_a_service_comes_before_what_others_have_just_been_promised(crowded: Scenario) -> None:
    train(crowded, 1, persistent=700)
    crowded.release(1)
    worker(crowded, 2, mib=0)
    crowded.start(3, owner=5, estimate=estimate(0, 0))
    crowded.at(5000)
    assert Offload(1) in crowded.ask(3, P, 700)
    crowded.send(events.Offloaded(1))
    assert Offload(3) in crowded.want(2, demand=demand("large", 600))


def test_where_all_wait_for_memory_one_that_waits_for_weights_is_no_exception(scenario: Scenario) -> None:
    """On a device that must not be oversubscribed: somebody is moved all the same."""
    for job, mib in ((1, 600), (2, 300)):
        scenario.start_and_want(job, owner=job, estimate=estimate(mib, 0), persistent=mib)
    worker(scenario, 3, mib=0)
    scenario.ask(3, E, 8)
    for job in (1, 2):
        assert scenario.ask(job, E, 200) == []
    assert RequestYield(2, forced=True) in scenario.want(3, demand=demand("a", 300))
    assert scenario.why(3).startswith("waiting for memory: needs 308 MiB with its weights")


@pytest.mark.parametrize("mib", [937, 5000])
def test_weights_larger_than_the_device_are_refused(scenario: Scenario, mib: int) -> None:
    """936 MiB fit beside what the worker has itself."""
    worker(scenario, 1)
    scenario.ask(1, E, 50)
    assert scenario.job(1).granted == Memory(0, 64 * MIB)
    reason = only(scenario.want(1, demand=demand("huge", mib)), DenyTurn).reason
    assert reason.code == "too_large"
    assert "that the service itself needs, but host0 holds 1000 MiB" in reason.text
    assert not scenario.job(1).waiting
    assert GrantTurn(1, 1) in scenario.want(1, demand=demand("fits", 936))
    scenario.release(1)
    reason = only(scenario.want(1, demand=demand("fits", 935)), DenyTurn).reason
    assert reason.code == "changed", "changed weights need another key"


def test_a_worker_that_outgrows_the_device_beside_its_weights_is_denied_memory(scenario: Scenario) -> None:
    worker(scenario, 1, mib=0)
    scenario.want(1, demand=demand("a", 900))
    assert "or as weights" in only(scenario.ask(1, E, 101), DenyMemory).reason.text


def test_weights_stay_while_their_owner_has_a_worker_there(scenario: Scenario) -> None:
    for job in (1, 2):
        worker(scenario, job)
    scenario.want(1, demand=demand("a"))
    assert [type(command) for command in scenario.exit(1, None, 9)] == [EndJob]
    assert dropped(scenario.exit(2)) == ["a"]
    assert scenario.machine.view().devices["host0"].weights == 0


def test_another_want_takes_the_place_of_the_first(scenario: Scenario) -> None:
    train(scenario, 1)
    worker(scenario, 2)
    scenario.want(2, demand=demand("a"))
    assert scenario.want(2) == [], "a trap beside it changes nothing"
    assert scenario.want(2, demand=demand("b")) == [place("b", 2)]
    assert GrantTurn(2, 2) in paused(scenario, 1)
    assert dropped(scenario.ask(1, P, 600)) == ["a"]
