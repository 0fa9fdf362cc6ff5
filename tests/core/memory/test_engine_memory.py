"""Memory of engines: where it stays although others need the room, and when it leaves."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import Command, DenyMemory
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
