"""Jobs whose attached process is gone while others of them have device memory."""

from __future__ import annotations

from carpool.core import events
from carpool.core.commands import DenyMemory, GrantMemory, Offload
from carpool.core.model import MIB, Memory, Oversubscribe
from tests.core.scenario import P, Scenario

WHY = "several of its processes use the device"


def left_behind(scenario: Scenario, kept: int) -> None:
    scenario.start(1)
    scenario.send(events.TraitsSeen(1, alone=WHY))
    scenario.ask(1, P, 100)
    scenario.send(events.Detached(1, WHY, kept * MIB))


def test_what_they_have_stays_theirs(scenario: Scenario) -> None:
    left_behind(scenario, 40)
    job = scenario.machine.view().jobs[1]
    assert job.granted == Memory(40 * MIB, 0) and not job.attached


def test_they_may_ask_for_more_and_give_back(scenario: Scenario) -> None:
    left_behind(scenario, 40)
    granted = scenario.send(events.MemoryRequested(1, P, 60 * MIB))
    assert [command.answers for command in granted if isinstance(command, GrantMemory)] == [P]
    scenario.send(events.MemoryReturned(1, P, 20 * MIB))
    assert scenario.machine.view().jobs[1].granted == Memory(20 * MIB, 0)


def test_more_than_there_is_is_refused(scenario: Scenario) -> None:
    left_behind(scenario, 40)
    refused = scenario.send(events.MemoryRequested(1, P, 10**6 * MIB))
    assert [command.reason.code for command in refused if isinstance(command, DenyMemory)] == ["too_large"]


def test_it_cannot_be_moved() -> None:
    scenario = Scenario()
    scenario.device("host0", 1000, oversubscribe=Oversubscribe.ON)
    scenario.start(2)
    left_behind(scenario, 40)
    commands = scenario.ask(2, P, 990) + scenario.at(60_000).last
    assert not any(isinstance(command, Offload) for command in commands)
    assert scenario.job(1).granted == Memory(40 * MIB, 0)


def test_who_comes_next_has_it_beside_its_own(scenario: Scenario) -> None:
    left_behind(scenario, 40)
    scenario.send(events.Attached(1))
    (granted,) = (command for command in scenario.ask(1, P, 50) if isinstance(command, GrantMemory))
    assert granted.answers is P and granted.memory.persistent >= 50 * MIB
    scenario.send(events.ProcessExited(1, code=0))
    assert scenario.machine.view().devices["host0"].free == scenario.machine.view().devices["host0"].capacity


def test_without_any_nothing_stays(scenario: Scenario) -> None:
    left_behind(scenario, 0)
    assert scenario.machine.view().jobs[1].granted == Memory()


def test_who_had_nothing_may_ask_when_it_is_known_that_there_are_several(scenario: Scenario) -> None:
    """Without a process in its seat, and before that, nobody listens."""
    scenario.start(1)
    scenario.send(events.Detached(1, None, 0))
    assert scenario.send(events.MemoryRequested(1, P, 6 * MIB)) == []
    scenario.send(events.TraitsSeen(1, alone=WHY))
    granted = scenario.send(events.MemoryRequested(1, P, 6 * MIB))
    assert [command.answers for command in granted if isinstance(command, GrantMemory)] == [P]
