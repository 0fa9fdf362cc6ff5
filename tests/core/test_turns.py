"""Turns: who computes, who is next, when a turn is asked back; and the races between seats and core."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core import events
from carpool.core.commands import GrantTurn, NameSuccessor, RequestYield, WatchIdle, WithdrawYield
from carpool.core.model import Cause, Settings, Usage
from tests.core.scenario import EVERY_BOUNDARY, P, Scenario, estimate, one_device


def lane_of(scenario: Scenario, jobs: int, wants: int = 0) -> Scenario:
    """Jobs 1..n attached in lane 1, of which the first ``wants`` have wanted a turn, one after the other."""
    for job in range(1, jobs + 1):
        scenario.start(job, estimate=estimate(10, 50))
    scenario.want_each(*range(1, wants + 1))
    return scenario


@pytest.mark.parametrize(("policy", "lanes"), [("fair", [1]), ("pack", [1, 2])])
def test_lanes_have_a_turn_each(policy: str, lanes: list[int]) -> None:
    """A job for which nobody waits is left alone."""
    scenario = lane_of(one_device(policy=policy), len(lanes))
    for lane in lanes:
        assert scenario.want(lane) == [GrantTurn(lane, lane)]
    assert scenario.at(3_600_000).last == []


def test_without_quantum_every_boundary_is_a_switch(scenario: Scenario) -> None:
    lane_of(scenario, 2, wants=1)
    assert scenario.want(2) == [NameSuccessor(1, 1, 2), RequestYield(1)]
    assert scenario.at(10).pass_(1, 2, ms=10) == [NameSuccessor(1, 1, None)]
    assert scenario.want(1) == [NameSuccessor(1, 2, 1), RequestYield(2)]
    assert scenario.at(20).pass_(2, 1, ms=10) == [NameSuccessor(1, 2, None)]
    assert scenario.job(1).holder


def test_no_redundant_commands(scenario: Scenario) -> None:
    lane_of(scenario, 3, wants=2)
    assert scenario.want(3) == []  # neither the successor nor the request changes
    assert scenario.want(3) == []
    assert scenario.want(3, urgent=True) == [NameSuccessor(1, 1, 3)], "a waiting job may become urgent"


def test_the_turn_is_asked_back_after_the_quantum() -> None:
    scenario = lane_of(one_device(quantum_us=50_000), 2, wants=1)
    scenario.at(10)
    assert scenario.want(2) == [NameSuccessor(1, 1, 2), WatchIdle(1, 20_000)]
    assert scenario.exactly_at(50) == [RequestYield(1)]


def test_a_switch_is_worth_its_cost() -> None:
    """A switch of 3 ms at 2 % needs a turn of 150 ms, whatever the quantum."""
    scenario = lane_of(one_device(quantum_us=50_000, max_switch_share_ppm=20_000), 2)
    scenario.send(events.Sampled(2, Usage(switch_cost_us=3_000)))
    scenario.want_each(1, 2)
    assert scenario.exactly_at(150) == [RequestYield(1)]


@pytest.mark.parametrize(("urgent", "forced_ms"), [(False, 1000), (True, 600)])
def test_a_holder_that_ignores_the_request_is_forced(urgent: bool, forced_ms: int) -> None:
    """And sooner for an urgent job."""
    scenario = lane_of(one_device(forced_after_us=1_000_000), 2, wants=2)
    if urgent:
        scenario.at(100).want(2, urgent=True)
    assert scenario.exactly_at(forced_ms) == [RequestYield(1, forced=True)]
    assert scenario.at(9000).last == []


@pytest.mark.parametrize("policy", ["fifo", "srtf", "fair", "pack"])
def test_an_urgent_want_goes_first_under_every_policy(policy: str) -> None:
    settings = replace(EVERY_BOUNDARY, policy=policy, quantum_us=10**9, max_lanes=1)
    scenario = lane_of(one_device(settings=settings), 3, wants=2)
    assert scenario.want(3, urgent=True) == [NameSuccessor(1, 1, 3), RequestYield(1)]
    scenario.at(5).pass_(1, 3)
    scenario.want(3)
    assert not scenario.job(3).urgent


def test_released_while_a_successor_was_being_named(scenario: Scenario) -> None:
    """The holder looked before we wrote: the next one gets the turn from us, and the name is wiped."""
    lane_of(scenario, 2, wants=2)
    assert scenario.at(3).release(1) == [NameSuccessor(1, 1, None), GrantTurn(1, 2)]


def test_passed_to_another_than_the_one_named_last(scenario: Scenario) -> None:
    lane_of(scenario, 3, wants=2)
    scenario.want(3, urgent=True)  # renamed, but the holder had looked already
    assert scenario.pass_(1, 2) == [NameSuccessor(1, 1, None), NameSuccessor(1, 2, 3), RequestYield(2)]
    assert scenario.job(2).holder


def test_passed_to_a_job_that_died(scenario: Scenario) -> None:
    lane_of(scenario, 3, wants=3)
    scenario.exit(2, signal=9, code=None)
    assert GrantTurn(1, 3) in scenario.pass_(1, 2)


def test_a_turn_given_back_before_we_heard_of_it(scenario: Scenario) -> None:
    """1 passes to 2, which gives back at once; 2's packet is read first."""
    lane_of(scenario, 3, wants=3)
    assert scenario.release(2, cause=Cause.EARLY) == [NameSuccessor(1, 1, 3)]
    assert scenario.want(2) == []
    assert scenario.pass_(1, 2) == [NameSuccessor(1, 1, None), GrantTurn(1, 3), NameSuccessor(1, 3, 2), RequestYield(3)]


def test_a_want_that_overtakes_its_own_release(scenario: Scenario) -> None:
    """Two threads of one job: one traps before the other has said that the turn is over.  After its end all is late."""
    lane_of(scenario, 2, wants=1)
    assert scenario.want(1) == []
    assert scenario.release(1) == [GrantTurn(1, 1)]
    scenario.exit(1)
    assert scenario.release(1) == []
    assert scenario.want(1) == []
    assert scenario.pass_(1, 2) == []


def test_the_request_is_withdrawn_when_nobody_waits(scenario: Scenario) -> None:
    lane_of(scenario, 2, wants=2)
    commands = scenario.exit(2, signal=9, code=None)
    assert commands[-2:] == [NameSuccessor(1, 1, None), WithdrawYield(1)]
    assert scenario.at(60_000).last == []


def test_the_holder_dies_and_the_next_one_computes_at_once(scenario: Scenario) -> None:
    lane_of(scenario, 2, wants=2)
    commands = scenario.exit(1, signal=9, code=None)
    assert commands[0].job == 1 and GrantTurn(1, 2) in commands  # type: ignore[union-attr]


def test_a_holder_blocked_in_its_allocator_gives_way(scenario: Scenario) -> None:
    lane_of(scenario, 2)
    scenario.start(3, estimate=estimate(800, 50), persistent=800)
    scenario.want_each(1, 2)
    assert scenario.ask(1, P, 700) == [RequestYield(1, forced=True)]
    assert scenario.at(1).release(1, cause=Cause.FORCED) == [NameSuccessor(1, 1, None), GrantTurn(1, 2)]
    assert scenario.want(1) == []  # it may want, but could not go on: it is not named


def test_time_does_not_go_back(scenario: Scenario) -> None:
    scenario.at(10).submit(1)
    scenario.ms = 5
    with pytest.raises(ValueError, match="time went back"):
        scenario.submit(2)


def test_another_policy_on_the_running_machine_reorders_at_once() -> None:
    scenario = one_device(policy="fifo", quantum_us=0)
    for job, iterations in ((1, 50), (2, 100), (3, 10)):
        scenario.start(job, iterations=iterations, estimate=estimate(10, 50, iteration_us=1000))
    scenario.want_each(1, 2, 3)
    changed = scenario.send(events.SettingsChanged(Settings(policy="srtf", quantum_us=0, max_switch_share_ppm=10**6)))
    assert changed == [NameSuccessor(1, 1, 3), RequestYield(1)]
