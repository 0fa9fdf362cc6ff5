"""Memory of engines: where it stays although others need the room, and when it leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core import events
from carpool.core.commands import Command, DenyMemory, StopEngine
from carpool.core.model import MIB, Oversubscribe, Service
from tests.core.scenario import FREE, P, Scenario, estimate, moved_out, of_kind, one_device

ENGINE = Service(engine=True)
PINNED = Service(engine=True, pinned=True)


@pytest.fixture
def scenario() -> Scenario:
    return one_device(settings=FREE, oversubscribe=Oversubscribe.AUTO)


def engine(scenario: Scenario, job: int, mib: int, service: Service = ENGINE) -> None:
    """It has so many MiB, and no requests."""
    scenario.start(job, service=service)
    scenario.leave(scenario.ask(job, P, mib))
    scenario.at(scenario.ms + 2_000)  # it has been idle for long enough to leave


def busy(scenario: Scenario, job: int, busy: bool = True) -> list[Command]:
    return scenario.send(events.ServiceBusy(job, busy))


def test_a_pinned_engine_is_not_moved_out_for_others(scenario: Scenario) -> None:
    engine(scenario, 1, 600, PINNED)
    engine(scenario, 2, 300)
    scenario.start(3)
    assert moved_out(scenario.ask(3, P, 350)) == [2]
    scenario.send(events.Offloaded(2))
    assert scenario.job(3).granted.persistent == 352 * MIB
    assert moved_out(busy(scenario, 2)) == [3]


def test_a_job_that_does_not_fit_beside_a_pinned_engine_says_so_and_keeps_no_other_waiting(scenario: Scenario) -> None:
    engine(scenario, 1, 600, PINNED)
    scenario.start_and_want(2)
    assert moved_out(scenario.ask(2, P, 500)) == []
    assert scenario.why(2).endswith("free 384 MiB on host0 (616 MiB of job 1, a pinned engine)")
    scenario.submit(3, estimate=estimate(500, 0))
    assert "(616 MiB of job 1, a pinned engine)" in scenario.why(3), "nor is it placed there to wait for good"
    scenario.build(4, 300)
    assert moved_out(scenario.at(60_000).last) == [], "nobody is moved out for what would not do"
    scenario.leave(scenario.exit(1))
    assert scenario.job(2).granted.persistent == 500 * MIB


def test_beside_a_pinned_engine_an_exclusive_job_that_does_not_fit_keeps_no_other_waiting(scenario: Scenario) -> None:
    """It was found to be exclusive after its memory had been moved out: others compute until the pinned one ends."""
    engine(scenario, 2, 500)
    scenario.start(1, service=PINNED)
    assert moved_out(scenario.ask(1, P, 600)) == [2]
    scenario.send(events.Offloaded(2))
    scenario.send(events.TraitsSeen(2, "it has another process", None))
    busy(scenario, 2)
    assert scenario.job(2).offloaded and not scenario.job(2).holder
    busy(scenario, 1)
    assert scenario.job(1).holder
    scenario.leave(scenario.exit(1))
    assert scenario.job(2).holder and scenario.job(2).granted.persistent


def test_its_user_lets_a_pinned_engine_sleep(scenario: Scenario) -> None:
    engine(scenario, 1, 600, PINNED)
    assert moved_out(scenario.send(events.PauseChanged(1, "alice"))) == [1]
    scenario.send(events.Offloaded(1))
    scenario.build(2, 900)
    scenario.send(events.PauseChanged(1, None))
    assert moved_out(busy(scenario, 1)) == [2]
    scenario.send(events.Offloaded(2))
    assert scenario.job(1).holder


def test_of_pinned_engines_that_wait_for_each_other_one_fails(scenario: Scenario) -> None:
    engine(scenario, 1, 400, PINNED)
    engine(scenario, 2, 400, PINNED)
    scenario.ask(1, P, 700)
    commands = scenario.ask(2, P, 700)
    denied = of_kind(commands + scenario.at(600_000).last, DenyMemory)
    assert [each.job for each in denied] == [2]


# The host store is full


@pytest.fixture
def small_store() -> Scenario:
    """Two engines on a device for one, and a host store for one."""
    made = one_device(settings=FREE, oversubscribe=Oversubscribe.AUTO, host_store=700 * MIB)
    for job in (1, 2):
        engine(made, job, 600)
        served(made, job)
    assert made.job(1).offloaded
    return made


def served(scenario: Scenario, job: int, served: bool = True) -> None:
    scenario.send(events.EngineServed(job, served))


def stopped(commands: list[Command]) -> list[int]:
    return [each.job for each in of_kind(commands, StopEngine)]


def test_the_least_recently_used_idle_engine_ends_when_the_store_is_full(small_store: Scenario) -> None:
    small_store.start(3)
    assert stopped(small_store.ask(3, P, 600)) == [1]
    assert small_store.why(3).endswith("holds 616 MiB of 700 MiB; engine 1, idle, is being ended for room there")
    assert small_store.at(small_store.ms + 9_000).last == [], "it is waited for"
    small_store.send(events.CancelRequested(1))
    assert moved_out(small_store.leave(small_store.exit(1))) == [2]
    assert small_store.job(3).granted.persistent >= 600 * MIB


def test_an_engine_on_the_device_ends_instead_of_moving(small_store: Scenario) -> None:
    assert stopped(busy(small_store, 1)) == [2], "the other one is what the room is for"
    small_store.exit(2)
    assert small_store.job(1).holder


@pytest.mark.parametrize("service", [PINNED, None])
def test_pinned_engines_and_those_without_a_front_stay(service: Service | None) -> None:
    made = one_device(settings=FREE, oversubscribe=Oversubscribe.AUTO, host_store=100 * MIB)
    engine(made, 1, 600, service or ENGINE)
    served(made, 1, service is not None)
    made.start(2)
    assert stopped(made.ask(2, P, 600)) == []


def test_nothing_ends_that_would_not_make_enough_room(small_store: Scenario) -> None:
    small_store.send(events.SettingsChanged(replace(FREE, host_store=10 * MIB)))
    small_store.start(3)
    served(small_store, 2, False)
    assert stopped(small_store.ask(3, P, 600)) == []


def test_no_engine_ends_that_need_not() -> None:
    made = one_device(settings=FREE, oversubscribe=Oversubscribe.AUTO, host_store=650 * MIB)
    for job, mib in enumerate((50, 600, 600), 1):
        engine(made, job, mib)
        served(made, job)
    made.start(4)
    assert stopped(made.ask(4, P, 600)) == [2], "the first would not do"


def test_an_engine_that_goes_on_is_not_waited_for_and_not_asked_again(small_store: Scenario) -> None:
    small_store.start(3)
    small_store.ask(3, P, 600)
    began_ms = small_store.ms
    small_store.at(began_ms + 9_999)
    later = small_store.at(began_ms + 100_000).last
    assert stopped(later) == [2], "the next one"


def test_an_engine_that_gets_requests_first_may_be_asked_again(small_store: Scenario) -> None:
    small_store.start(3)
    small_store.ask(3, P, 600)
    following = busy(small_store, 1)
    assert stopped(following) == [2]


def test_idle_engines_keep_no_engine_from_being_placed(small_store: Scenario) -> None:
    small_store.submit(3, service=ENGINE, estimate=estimate(600, 0))
    assert small_store.job(3).device == "host0"
    served(small_store, 1, False)
    small_store.submit(4, service=ENGINE, estimate=estimate(600, 0))
    assert "reserved by running jobs" in small_store.why(4)
