"""Engines: their front says when they have requests, and the core takes and gives back turns for them."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import Command, GrantMemory, GrantTurn, Offload, PauseTurn, RequestYield, WatchIdle
from carpool.core.events import IllegalTransition
from carpool.core.model import Cause, Oversubscribe, Service, Settings
from tests.core.scenario import P, Scenario, estimate, started
from tests.core.service_steps import MS, paused, train, worker

ENGINE = Service(engine=True)
QUANTUM = 100


@pytest.fixture
def scenario() -> Scenario:
    made = Scenario(Settings(quantum_us=QUANTUM * MS, max_switch_share_ppm=1_000_000))
    made.device("host0", 1000, oversubscribe=Oversubscribe.AUTO)
    return made


def engine(scenario: Scenario, job: int, persistent: int = 100, owner: int = 0) -> None:
    """It has loaded its weights and waits for requests."""
    scenario.start(job, owner, service=ENGINE, estimate=estimate(persistent, 0), persistent=persistent)


def busy(scenario: Scenario, job: int, busy: bool = True) -> list[Command]:
    return scenario.send(events.ServiceBusy(job, busy))


def idle(scenario: Scenario, job: int) -> list[Command]:
    return busy(scenario, job, False)


def serving(scenario: Scenario, job: int, *training: int) -> None:
    busy(scenario, job)
    for each in training:
        paused(scenario, each)
    assert scenario.job(job).holder


def gives_back(scenario: Scenario, job: int, ms: int = 0) -> list[Command]:
    return scenario.release(job, ms, iterations=0, cause=Cause.FORCED)


def answered(scenario: Scenario, job: int) -> None:
    busy(scenario, job)
    idle(scenario, job)
    gives_back(scenario, job)


def test_requests_pause_training_at_once_and_their_end_lets_it_go_on(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    assert busy(scenario, 1) == [PauseTurn(2, forced=True)], "an engine waits for no boundary"
    assert paused(scenario, 2) == [GrantTurn(1, 1)]
    assert idle(scenario, 1) == [RequestYield(1, forced=True)]
    assert gives_back(scenario, 1, 50) == [GrantTurn(2, 2)]


def test_a_turn_is_given_back_though_nobody_waits(scenario: Scenario) -> None:
    engine(scenario, 1)
    assert busy(scenario, 1) == [GrantTurn(1, 1)]
    assert idle(scenario, 1) == [RequestYield(1, forced=True)]


def test_a_stream_keeps_its_turn_while_others_wait(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    serving(scenario, 1, 2)
    assert scenario.at(8_990).last == []


def test_the_first_touch_of_a_busy_engine_changes_nothing(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    busy(scenario, 1)
    assert scenario.want(1) == []
    assert paused(scenario, 2) == [GrantTurn(1, 1)]


def test_requests_that_end_before_the_turn_has_come_are_forgotten(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    busy(scenario, 1)
    idle(scenario, 1)
    assert paused(scenario, 2) == [GrantTurn(2, 2)]
    assert not scenario.job(1).waiting


def test_an_engine_that_waits_itself_goes_on_waiting(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    busy(scenario, 1)
    scenario.want(1)
    idle(scenario, 1)
    assert GrantTurn(1, 1) in paused(scenario, 2)


def test_requests_that_come_while_it_lets_go_get_the_next_turn(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    serving(scenario, 1, 2)
    idle(scenario, 1)
    busy(scenario, 1)
    assert gives_back(scenario, 1, 5) == [GrantTurn(1, 1)]


def test_an_engine_that_computes_without_requests_leaves_others_every_other_quantum(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    scenario.want(1)
    assert WatchIdle(1, 20 * MS) in paused(scenario, 2), "and its turn ends when it is off its device"
    assert scenario.at(QUANTUM - 1).last == []
    assert scenario.at(QUANTUM).last == [RequestYield(1, forced=True)]
    assert gives_back(scenario, 1, QUANTUM) == [GrantTurn(2, 2)]
    assert scenario.want(1) == []
    assert scenario.at(2 * QUANTUM - 1).last == []
    assert scenario.at(2 * QUANTUM).last == [PauseTurn(2, forced=True)]


def test_requests_end_the_quantum_of_others(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    scenario.want(1)
    paused(scenario, 2)
    scenario.at(QUANTUM)
    gives_back(scenario, 1, QUANTUM)
    assert busy(scenario, 1) == [PauseTurn(2, forced=True)]


def test_an_engine_without_requests_makes_way_for_one_that_has_some(scenario: Scenario) -> None:
    engine(scenario, 1)
    engine(scenario, 2)
    scenario.want(1)
    assert busy(scenario, 2) == [RequestYield(1, forced=True)]
    assert gives_back(scenario, 1) == [GrantTurn(1, 2)]


def test_training_has_a_tenth_of_the_time_of_a_device_whose_engine_is_always_busy(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    serving(scenario, 1, 2)
    assert scenario.at(9_000).last == [RequestYield(1, forced=True)]
    for beginning in range(9_000, 14_000, 1_000):
        assert gives_back(scenario, 1, 900) == [GrantTurn(2, 2)]
        scenario.want(1)
        assert scenario.at(beginning + QUANTUM - 1).last == []
        assert scenario.at(beginning + QUANTUM).last == [PauseTurn(2, forced=True)]
        assert paused(scenario, 2) == [GrantTurn(1, 1)]
        assert scenario.at(beginning + 999).last == []
        assert scenario.at(beginning + 1_000).last == [RequestYield(1, forced=True)]


def test_time_without_requests_pays_the_debt(scenario: Scenario) -> None:
    engine(scenario, 1)
    train(scenario, 2)
    serving(scenario, 1, 2)
    scenario.at(8_000)
    idle(scenario, 1)
    gives_back(scenario, 1, 8_000)
    scenario.at(9_000)
    serving(scenario, 1, 2)
    assert scenario.at(17_990).last == [], "all is paid"


def test_engines_that_may_have_all_the_time(scenario: Scenario) -> None:
    scenario = Scenario(Settings(quantum_us=QUANTUM * MS, service_share_ppm=1_000_000))
    scenario.device("host0", 1000)
    engine(scenario, 1)
    train(scenario, 2)
    busy(scenario, 1)
    assert paused(scenario, 2) == [GrantTurn(1, 1)], "and is not asked for it"
    assert scenario.at(3_600_000).last == []


def test_an_engine_without_requests_leaves_for_another_engine(scenario: Scenario) -> None:
    for job in (1, 2):
        engine(scenario, job, persistent=400)
        answered(scenario, job)
    scenario.start(3, service=ENGINE)
    assert scenario.ask(3, P, 400) == [Offload(2)]


def test_training_that_is_known_not_to_fit_beside_an_engine_starts(scenario: Scenario) -> None:
    """And has the device while there are no requests."""
    engine(scenario, 1, persistent=700)
    answered(scenario, 1)
    scenario.start_and_want(2, estimate=estimate(700, 100))
    assert scenario.ask(2, P, 700) == [Offload(1)]
    scenario.send(events.Offloaded(1))
    assert busy(scenario, 1) == [RequestYield(2)]
    assert scenario.release(2, 100) == [Offload(2)]
    assert GrantTurn(1, 1) in scenario.send(events.Offloaded(2))


def test_an_engine_that_is_known_not_to_fit_beside_training_starts(scenario: Scenario) -> None:
    train(scenario, 1, persistent=700)
    scenario.start(2, service=ENGINE, estimate=estimate(700, 100))
    assert scenario.ask(2, P, 700) == [RequestYield(1)]
    assert scenario.release(1, 100) == [Offload(1)]


def test_an_engine_loads_beside_one_that_is_always_busy(scenario: Scenario) -> None:
    """In the time that is left to others, a quantum at a time."""
    engine(scenario, 1)
    busy(scenario, 1)
    scenario.start(2, service=ENGINE)
    assert scenario.want(2) == []
    assert scenario.exactly_at(9000) == [RequestYield(1, forced=True)]
    assert GrantTurn(1, 2) in gives_back(scenario, 1)
    assert scenario.want(1) == []
    assert scenario.exactly_at(9000 + QUANTUM) == [RequestYield(2, forced=True)]


@pytest.mark.parametrize("service", [ENGINE, None], ids=["an engine", "training"])
def test_memory_beside_an_engine_that_is_always_busy(scenario: Scenario, service: Service | None) -> None:
    """It comes in the engine's recess, which lasts a quantum from the turn for which the engine's memory has left."""
    engine(scenario, 1, persistent=700)
    busy(scenario, 1)
    scenario.start(2, service=service)
    assert scenario.ask(2, P, 700) == []
    assert scenario.exactly_at(9000) == [RequestYield(1, forced=True)]
    assert gives_back(scenario, 1) == [Offload(1)]
    assert scenario.want(1) == []
    scenario.at(9300)
    assert GrantMemory in map(type, scenario.send(events.Offloaded(1)))
    assert GrantTurn in map(type, scenario.want(2))
    assert RequestYield in map(type, scenario.exactly_at(9300 + QUANTUM))


def test_engines_of_known_sizes_need_not_fit_together() -> None:
    """A third one does not, in whichever lane of the others."""
    scenario = Scenario(Settings(policy="pack"))
    scenario.device("host0", 1000, oversubscribe=Oversubscribe.AUTO)
    for job, size in enumerate((400, 400, 800), 1):
        assert started(scenario.submit(job, service=ENGINE, estimate=estimate(size, 50))) == [job]


def test_only_engines_have_requests(scenario: Scenario) -> None:
    worker(scenario, 1)
    with pytest.raises(IllegalTransition, match="not an engine"):
        busy(scenario, 1)


def test_requests_before_the_engine_has_attached(scenario: Scenario) -> None:
    scenario.submit(1, service=ENGINE)
    assert busy(scenario, 1) == []
    scenario.began(1)
    assert scenario.want(1) == [GrantTurn(1, 1)]
    assert idle(scenario, 1) == [RequestYield(1, forced=True)]
