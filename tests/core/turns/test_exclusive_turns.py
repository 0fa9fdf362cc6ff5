"""Checkpoint jobs: turns of the whole device."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import Command, EndJob, GrantMemory, GrantTurn, Offload, RequestYield, SignalJob
from carpool.core.events import IllegalTransition
from carpool.core.model import MIB, Cause, DeviceSpec, Memory, Oversubscribe, Usage
from tests.core.scenario import FREE, P, Scenario, adopted, estimate, of_kind, one_device, only


def device(name: str = "cuda0", mib: int = 1000, oversubscribe: Oversubscribe = Oversubscribe.AUTO) -> DeviceSpec:
    return DeviceSpec(name, mib * MIB, oversubscribe=oversubscribe, checkpoint=True)


def on_device(restarts: bool = False, **spec: Oversubscribe) -> Scenario:
    made = Scenario(FREE)
    if restarts:
        made.send(events.RestartBegan())
    made.send(events.DeviceAdded(device(**spec)))
    return made


@pytest.fixture
def scenario() -> Scenario:
    return on_device()


def arrive(scenario: Scenario, job: int, **spec: object) -> list[Command]:
    """As the daemon does: it attaches and wants a turn before there is a process."""
    scenario.submit(job, checkpoint=True, **spec)
    scenario.send(events.Attached(job))
    return list(scenario.want(job))


def suspend(scenario: Scenario, job: int, mib: int) -> list[Command]:
    """Its turn ends, and ``mib`` were measured."""
    usage = Usage(persistent_live=mib * MIB)
    following = list(scenario.send(events.TurnReleased(job, Cause.FORCED, usage)))
    return following + list(scenario.want(job))


def test_its_turn_has_the_whole_device(scenario: Scenario) -> None:
    assert arrive(scenario, 1) == [GrantMemory(1, Memory(1000 * MIB)), GrantTurn(1, 1)]
    suspend_ = suspend(scenario, 1, 300)
    assert GrantMemory(1, Memory()) in suspend_
    assert suspend_[-2:] == [GrantMemory(1, Memory(1000 * MIB)), GrantTurn(1, 1)]


def test_others_leave_before_it_comes(scenario: Scenario) -> None:
    scenario.build(1, 400, estimate=estimate(0, 0))
    scenario.want(1)
    assert arrive(scenario, 2) == [RequestYield(1)]
    assert scenario.why(2) == "waiting for running jobs on cuda0 to yield"
    assert scenario.release(1) == [Offload(1)]
    assert scenario.want(1) == []
    assert scenario.why(2) == "waiting for an exclusive turn on cuda0: memory of other jobs is being moved out"
    assert GrantTurn(1, 2) in scenario.send(events.Offloaded(1))
    assert scenario.job(1).offloaded


def test_when_it_has_been_suspended_they_come_back(scenario: Scenario) -> None:
    scenario.build(1, 400, estimate=estimate(0, 0))
    arrive(scenario, 2)
    assert Offload(1) in scenario.at(3000).last, "it has been idle for longer than moving it takes"
    scenario.send(events.Offloaded(1))
    assert scenario.job(2).holder
    assert scenario.want(1) == [RequestYield(2)]
    back = suspend(scenario, 2, 100)
    assert GrantTurn(1, 1) in back and scenario.job(2).granted == Memory()
    assert scenario.why(2).startswith("suspended; ")


def test_a_job_without_any_memory_waits_too(scenario: Scenario) -> None:
    """In a lane of its own, of another owner."""
    arrive(scenario, 1)
    scenario.start(2, 7)
    assert scenario.want(2) == [RequestYield(1)]
    assert scenario.why(2) == "waiting for its turn: job 1 has exclusive use of cuda0 for its turn (checkpoint)"
    assert GrantTurn(2, 2) in suspend(scenario, 1, 100)
    assert scenario.why(1) == "suspended; waiting for running jobs on cuda0 to yield"
    assert GrantTurn(1, 1) in scenario.release(2)


def test_who_needs_memory_before_its_first_turn_asks_for_it_too(scenario: Scenario) -> None:
    arrive(scenario, 1)
    scenario.start(2)
    assert scenario.ask(2, P, 100) == [RequestYield(1)]
    assert 2 in [command.job for command in of_kind(suspend(scenario, 1, 100), GrantMemory)]


@pytest.mark.parametrize("ends", [False, True], ids=["it gets its turn", "it ends while it waits"])
def test_nobody_begins_while_it_waits_for_the_turns_of_others(scenario: Scenario, ends: bool) -> None:
    for job, owner in ((1, 7), (2, 8)):
        scenario.start(job, owner)
    scenario.want(1)
    assert arrive(scenario, 3) == [RequestYield(1)]
    assert scenario.want(2) == []
    assert scenario.why(2).startswith("waiting for its turn: cuda0 is being freed for the turn of a checkpoint job")
    if ends:
        scenario.send(events.CancelRequested(3))
        assert GrantTurn(2, 2) in scenario.exit(3, None, 9)
    else:
        assert GrantTurn(3, 3) in scenario.release(1)


def test_less_than_was_measured_is_never_reserved_for_a_resume(scenario: Scenario) -> None:
    arrive(scenario, 1)
    scenario.send(events.ForeignMemory("cuda0", 500 * MIB))
    assert not any(isinstance(command, GrantTurn) for command in suspend(scenario, 1, 600))
    assert scenario.why(1) == "suspended; needs 600 MiB of cuda0, of which 500 MiB can be used"
    following = scenario.send(events.ForeignMemory("cuda0", 300 * MIB))
    assert following == [GrantMemory(1, Memory(700 * MIB)), GrantTurn(1, 1)]


def test_memory_that_cannot_move_stays_beside_it(scenario: Scenario) -> None:
    scenario.build(1, 200, estimate=estimate(0, 0))
    scenario.send(events.TraitsSeen(1, immovable="shared"))
    granted = [command for command in arrive(scenario, 2) if isinstance(command, GrantMemory)]
    assert granted[-1].memory.persistent == 1000 * MIB - scenario.job(1).reserved.persistent


def test_two_of_them_take_turns(scenario: Scenario) -> None:
    arrive(scenario, 1)
    assert arrive(scenario, 2) == [RequestYield(1)]
    assert GrantTurn(1, 2) in suspend(scenario, 1, 900)
    assert GrantTurn(1, 1) in suspend(scenario, 2, 900)


def test_where_memory_is_not_moved_it_waits_until_the_others_have_ended() -> None:
    scenario = on_device(oversubscribe=Oversubscribe.OFF)
    scenario.build(1, 400, estimate=estimate(0, 0))
    scenario.want(1)
    assert not of_kind(arrive(scenario, 2), GrantTurn)
    assert GrantTurn(1, 2) in scenario.exit(1)


@pytest.mark.parametrize(("owner", "lane"), [(0, 1), (7, 2)], ids=["of its user", "of another user"])
def test_one_that_has_its_device_to_itself_for_good_is_not_asked(scenario: Scenario, owner: int, lane: int) -> None:
    arrive(scenario, 1)
    scenario.start(2, owner)
    scenario.send(events.TraitsSeen(1, alone="it cannot be suspended"))
    asked = scenario.want(2)
    assert scenario.why(2) == "job 1 has exclusive use of cuda0: it cannot be suspended"
    assert (asked == []) == (owner == 0)
    assert GrantTurn(lane, 2) in scenario.exit(1)


def test_it_is_cancelled_while_it_is_suspended(scenario: Scenario) -> None:
    scenario.start_and_want(2, 7)
    arrive(scenario, 1)
    assert scenario.send(events.CancelRequested(1)) == [SignalJob(1, 15)]
    assert isinstance(scenario.exit(1, None, 9)[0], EndJob)
    assert scenario.machine.view().devices["cuda0"].jobs == (2,)


def test_it_runs_only_where_a_driver_can_suspend_it() -> None:
    scenario = one_device(settings=FREE)
    ended = only(scenario.submit(1, checkpoint=True), EndJob)
    assert ended.reason.text == "checkpoint jobs need a driver that suspends processes: no device here can"
    scenario.send(events.DeviceAdded(device()))
    ended = only(scenario.submit(2, checkpoint=True, device="host0"), EndJob)
    assert "host0 has no driver" in ended.reason.text
    scenario.submit(3, checkpoint=True)
    assert scenario.job(3).device == "cuda0"


def test_after_a_restart_it_comes_as_one_that_is_suspended() -> None:
    scenario = on_device(restarts=True)
    scenario.submit(1, checkpoint=True)
    with pytest.raises(IllegalTransition, match="found with a seat"):
        scenario.send(adopted(1, "cuda0", lane=1, attached=True))
    scenario.send(adopted(1, "cuda0"))
    scenario.send(events.RestartEnded())
    scenario.send(events.Attached(1))
    scenario.send(events.Sampled(1, Usage(persistent_live=300 * MIB)))
    assert scenario.want(1) == [GrantMemory(1, Memory(1000 * MIB)), GrantTurn(1, 1)]


def test_after_a_restart_nobody_else_begins_beside_one_that_could_not_be_suspended() -> None:
    scenario = on_device(restarts=True)
    scenario.submit(1, checkpoint=True)
    scenario.submit(2)
    scenario.send(adopted(1, "cuda0"))
    scenario.send(adopted(2, "cuda0", lane=1, attached=True, wants_turn=True))
    scenario.send(events.TraitsSeen(1, alone="it computes"))
    assert not of_kind(scenario.send(events.RestartEnded()), GrantTurn)
    scenario.send(events.Attached(1))
    assert [command.job for command in of_kind(scenario.want(1), GrantTurn)] == [1]
    assert scenario.send(events.TraitsSeen(1)) == [RequestYield(1)], "its turn can be asked back now"
