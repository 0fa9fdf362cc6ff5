"""Services: their order, and how they preempt other jobs; `test_weights` has what they compute with."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import Command, DropWeights, GrantTurn, PauseTurn, RequestYield, WithdrawYield
from carpool.core.events import IllegalTransition
from carpool.core.model import MIB, Cause, JobSpec, Memory, Service, Serving
from tests.core.scenario import P, Scenario, adopted, estimate, one_device
from tests.core.service_steps import MS, demand, dropped, paused, place, train, worker

SERVICE = Service()


# Turns


def test_a_service_pauses_the_holder_computes_and_lets_it_go_on(scenario: Scenario) -> None:
    train(scenario, 1)
    worker(scenario, 2)
    assert scenario.job(2).lane != scenario.job(1).lane
    assert scenario.want(2, demand=demand()) == [place("bert", 2), PauseTurn(1)]
    assert scenario.why(2) == "waiting for running jobs on host0 to pause"
    assert paused(scenario, 1) == [GrantTurn(2, 2)]
    assert scenario.why(1) == "paused while a service needs host0"
    assert scenario.job(1).holder and scenario.machine.view().lanes[1].paused
    scenario.want(1)
    assert scenario.release(2) == [GrantTurn(1, 1)]
    assert scenario.job(1).holder and not scenario.job(1).waiting
    assert scenario.machine.view().devices["host0"].weights == 200 * MIB, "they stay"


def test_on_a_device_with_nobody_else_it_begins_at_once_and_finds_its_weights_again(scenario: Scenario) -> None:
    worker(scenario, 1)
    assert scenario.want(1) == [GrantTurn(1, 1)], "without any weights"
    for _ in range(2):
        scenario.release(1)
        assert scenario.want(1, demand=demand()) == [place("bert", 1), GrantTurn(1, 1)]


def test_who_has_paused_is_not_counted_as_computing(scenario: Scenario) -> None:
    train(scenario, 1)
    worker(scenario, 2)
    scenario.at(10).want(2, demand=demand())
    paused(scenario, 1)
    scenario.at(200).release(2)
    scenario.at(205).release(1)
    assert scenario.job(1).attained_us == 15 * MS


def test_nobody_begins_while_a_service_waits_or_computes(scenario: Scenario) -> None:
    """Neither in the lane of the paused job nor in another one."""
    train(scenario, 1)
    train(scenario, 2, persistent=0)
    worker(scenario, 3)
    scenario.start(4, owner=7, estimate=estimate(0, 10))
    first = scenario.want(3, demand=demand())
    assert PauseTurn(1) in first
    assert scenario.want(4) == []
    assert scenario.why(4) == "waiting for its turn: host0 is being freed for the turn of a service"
    assert [each for each in scenario.release(1) if isinstance(each, GrantTurn)] == [GrantTurn(2, 3)]
    assert scenario.why(2) == "waiting for its turn: job 3 has exclusive use of host0 for its turn (service)"
    granted = [each.job for each in scenario.release(3) if isinstance(each, GrantTurn)]
    assert granted == [2, 4], "the turn that was given back meanwhile goes to the next"


def test_the_next_service_computes_before_the_paused_go_on(scenario: Scenario) -> None:
    train(scenario, 1)
    for job in (2, 3):
        worker(scenario, job)
    scenario.want(2, demand=demand())
    paused(scenario, 1)
    assert scenario.want(3, demand=demand("vgg")) == [place("vgg", 3)], "copied while the other computes"
    assert scenario.release(2) == [GrantTurn(2, 3)]
    assert scenario.release(3) == [GrantTurn(1, 1)]


@pytest.mark.parametrize(
    ("serving", "order"), [(Serving.EDF, [4, 3, 5, 2]), (Serving.FCFS, [2, 3, 4, 5]), (Serving.PRIORITY, [5, 3, 4, 2])]
)
def test_the_order_of_services(serving: Serving, order: list[int]) -> None:
    """Workers of two owners; 2 has no deadline."""
    scenario = one_device(serving=serving)
    worker(scenario, 1)
    scenario.want(1)
    for job, owner, by, priority in ((2, 0, None, 50), (3, 1, 900, 100), (4, 0, 800, 100), (5, 1, 950, 300)):
        worker(scenario, job, owner, priority=priority)
        scenario.want(job, demand=demand(mib=10, by=by))
    computed = [1]
    while len(computed) < 5:
        computed += [each.job for each in scenario.release(computed[-1]) if isinstance(each, GrantTurn)]
    assert computed == [1, *order]


@pytest.mark.parametrize(("reload_ms", "asked_ms"), [(None, 10_000), (30_000, 40_000)], ids=["none", "slow"])
def test_a_service_is_not_asked_for_its_turn_before_it_has_kept_it_for_too_long(
    scenario: Scenario, reload_ms: int | None, asked_ms: int
) -> None:
    """The time in which its weights are copied does not count: they may be dropped when it loses its turn, and it would
    begin to copy them again for ever.
    """
    train(scenario, 1)
    worker(scenario, 2)
    scenario.want(2, demand=demand(reload_ms=reload_ms) if reload_ms else None)
    paused(scenario, 1)
    assert scenario.exactly_at(asked_ms) == [RequestYield(2)]
    assert scenario.at(asked_ms + 10_000).last == [RequestYield(2, forced=True)]


def test_a_signal_comes_before_services(scenario: Scenario) -> None:
    """The paused job goes on, and is left alone for as long as services wait without a deadline."""
    train(scenario, 1)
    for job in (2, 3):
        worker(scenario, job)
    scenario.want(2, demand=demand())
    paused(scenario, 1)
    scenario.want(3, demand=demand("vgg"))
    assert scenario.want(1, urgent=True) == [RequestYield(2)]
    assert scenario.release(2) == [GrantTurn(1, 1)]
    assert scenario.exactly_at(20) == [PauseTurn(1, forced=True)], "its patience is over by now"
    assert paused(scenario, 1) == [GrantTurn(2, 3)]


def test_another_job_with_a_signal_gets_the_turn_of_a_service_soon(scenario: Scenario) -> None:
    worker(scenario, 1)
    scenario.want(1)
    worker(scenario, 2)
    scenario.want(2)
    scenario.start(3, estimate=estimate(0, 10))
    assert scenario.want(3, urgent=True) == [RequestYield(1)]
    assert scenario.at(500).last == [RequestYield(1, forced=True)]
    assert scenario.release(1, cause=Cause.FORCED) == [GrantTurn(2, 3)]
    assert scenario.at(520).last == [PauseTurn(3, forced=True)]


def test_who_ends_while_it_is_paused_leaves_its_lane_to_others(scenario: Scenario) -> None:
    train(scenario, 1)
    train(scenario, 2, persistent=0)
    worker(scenario, 3)
    scenario.want(3)
    paused(scenario, 1)
    assert not [each for each in scenario.exit(1, None, 9) if isinstance(each, GrantTurn)]
    assert scenario.release(3) == [GrantTurn(1, 2)]


@pytest.mark.parametrize("has_begun", [False, True])
def test_when_a_service_dies_the_others_go_on(scenario: Scenario, has_begun: bool) -> None:
    train(scenario, 1)
    worker(scenario, 2)
    scenario.want(2, demand=demand())
    if has_begun:
        paused(scenario, 1)
    following = scenario.exit(2, None, 9)
    assert (GrantTurn(1, 1) if has_begun else WithdrawYield(1)) in following
    assert DropWeights("host0", 0, "bert") in following, "nobody is left who could use them"
    if not has_begun:
        assert paused(scenario, 1) == [GrantTurn(1, 1)], "it had paused already"


def test_a_paused_job_does_not_go_on_where_another_has_the_device_to_itself(scenario: Scenario) -> None:
    train(scenario, 1, owner=5)
    worker(scenario, 2, owner=5)
    scenario.start(3, owner=5, estimate=estimate(0, 0))
    scenario.want(2)
    paused(scenario, 1)
    following = scenario.send(events.TraitsSeen(3, alone="talks"))
    assert following == [RequestYield(1, forced=True), RequestYield(2)]
    assert scenario.release(2) == []
    scenario.release(1, cause=Cause.FORCED)
    assert scenario.want(3) == [GrantTurn(job=3, lane=1)]


# When holders are asked


def measured(scenario: Scenario, iteration_ms: int) -> None:
    train(scenario, 1)
    scenario.send(events.Sampled(1, scenario.usage(1, device_ms=10 * iteration_ms, iterations=10)))
    worker(scenario, 2)


@pytest.mark.parametrize(
    ("iteration_ms", "by_ms", "waits_ms"),
    [
        (5, None, 20),  # without a deadline it is waited for a little
        (200, None, 20),
        (100, 150, 100),  # 100 ms of slack: until 200, less 10 to compute and 40 to copy
        (101, 150, 0),
    ],
)
def test_a_boundary_is_waited_for_where_it_comes_before_the_deadline_needs_it(
    scenario: Scenario, iteration_ms: int, by_ms: int | None, waits_ms: int
) -> None:
    measured(scenario, iteration_ms)
    assert PauseTurn(1, forced=waits_ms == 0) in scenario.want(2, demand=demand(by=by_ms))
    assert scenario.exactly_at(waits_ms) == [PauseTurn(1, forced=True)] * (waits_ms > 0)


def test_copied_weights_leave_more_time(scenario: Scenario) -> None:
    measured(scenario, 101)
    scenario.at(1).want(2, demand=demand())
    paused(scenario, 1)
    scenario.at(100).release(2)
    assert PauseTurn(1) in scenario.want(2, demand=demand(by=250))


def test_a_second_service_may_need_the_device_sooner(scenario: Scenario) -> None:
    measured(scenario, 5)
    worker(scenario, 3, owner=1)
    scenario.want(2, demand=demand(by=900))
    assert PauseTurn(1, forced=True) in scenario.want(3, demand=demand(by=20))


def test_who_waits_for_memory_comes_to_no_boundary(scenario: Scenario) -> None:
    train(scenario, 1, persistent=100)
    worker(scenario, 2, owner=3)
    scenario.ask(1, P, 980)
    assert PauseTurn(1, forced=True) in scenario.want(2)


# Illegal, impossible


def test_what_cannot_be(scenario: Scenario) -> None:
    scenario.start(1)
    with pytest.raises(IllegalTransition, match="the job is not a service"):
        scenario.want(1, demand=demand())
    with pytest.raises(ValueError, match="at least 0"):
        demand(mib=-1)
    with pytest.raises(IllegalTransition, match="after a restart only"):
        scenario.send(events.WeightsFound("host0", 0, "bert", 1, 1))


@pytest.mark.parametrize("spec", [{"gang": 2}, {"exclusive": True}, {"checkpoint": True}])
def test_a_service_shares_its_device(scenario: Scenario, spec: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a service shares its device by grant"):
        scenario.send(events.Submitted(1, JobSpec(0, service=SERVICE, **spec)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("max_lanes", "lanes"), [(None, [1, 2, 2, 3]), (1, [1, None, None, None])])
def test_services_share_a_lane_with_services_of_their_owner_only(
    max_lanes: int | None, lanes: list[int | None]
) -> None:
    """Where a device may have no more lanes they wait."""
    scenario = one_device(max_lanes=max_lanes)
    train(scenario, 1)
    for job, owner in ((2, 0), (3, 0), (4, 1)):
        scenario.submit(job, owner, service=SERVICE)
    assert [scenario.job(job).lane for job in (1, 2, 3, 4)] == lanes
    if max_lanes:
        assert scenario.why(2) == "waiting for a lane: lanes open on host0: 1; services share no lane with other jobs"


# After a restart


def restarted(computes: bool) -> tuple[Scenario, list[Command]]:
    """A paused job, and a service that computes, or waits; weights of its owner, and of one that has no worker left."""
    scenario = Scenario()
    scenario.send(events.RestartBegan())
    scenario.device("host0", 1000)
    scenario.submit(1)
    scenario.submit(2, service=SERVICE)
    scenario.send(events.WeightsFound("host0", 0, "bert", 200 * MIB, 40 * MS))
    scenario.send(events.WeightsFound("host0", 9, "gone", 100 * MIB, 40 * MS))
    known = {"attached": True, "granted": Memory(300 * MIB, 100 * MIB)}
    scenario.send(adopted(1, lane=1, holds_turn=True, paused=True, **known))
    known = {"attached": True, "granted": Memory(0, 50 * MIB), "demand": demand()}
    scenario.send(adopted(2, lane=2, holds_turn=computes, wants_turn=not computes, **known))
    return scenario, scenario.send(events.RestartEnded())


def test_after_a_restart_a_service_computes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, first = restarted(computes=True)
    assert dropped(first) == ["gone"] and GrantTurn(1, 1) not in first
    assert scenario.ask(1, P, 900) == [], "its weights are in use"
    assert GrantTurn(1, 1) in scenario.release(2)


def test_after_a_restart_one_that_waits_is_promised_its_weights_anew() -> None:
    scenario, first = restarted(computes=False)
    assert place("bert", 2) in first and GrantTurn(2, 2) in first
    assert scenario.release(2) == [GrantTurn(1, 1)]
