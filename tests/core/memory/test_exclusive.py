"""Jobs that turn out to need their device to themselves, and memory that must stay where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core import events
from carpool.core.commands import (
    Command,
    DenyMemory,
    GrantMemory,
    GrantTurn,
    NameSuccessor,
    Offload,
    RequestYield,
    WatchIdle,
    WithdrawYield,
)
from carpool.core.events import IllegalTransition
from carpool.core.memory.residency import set_aside
from carpool.core.model import MIB, Cause, JobId, JobPhase, JobSpec, Memory, Oversubscribe, Usage
from tests.core.scenario import EVERY_BOUNDARY, E, P, Scenario, estimate, one_device

WHY = "its processes communicate by NCCL"
FREE = replace(EVERY_BOUNDARY, max_move_share_ppm=1_000_000)


def alone(scenario: Scenario, job: JobId) -> list[Command]:
    return list(scenario.send(events.TraitsSeen(job, alone=WHY)))


def stays(scenario: Scenario, job: JobId) -> list[Command]:
    return list(scenario.send(events.TraitsSeen(job, immovable="shared")))


def kinds(commands: list[Command]) -> set[type]:
    return {type(command) for command in commands}


def crowded() -> Scenario:
    return one_device(oversubscribe=Oversubscribe.AUTO, settings=FREE)


def build(scenario: Scenario, job: JobId, mib: int) -> None:
    scenario.start(job, estimate=estimate(0, 0))
    following = list(scenario.ask(job, P, mib))
    for command in following:
        if isinstance(command, Offload):
            following += scenario.send(events.Offloaded(command.job))


def test_the_others_wait_until_it_has_ended(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    scenario.want(1)
    alone(scenario, 1)
    assert scenario.want(2) == []
    assert scenario.why(2) == f"job 1 has exclusive use of host0: {WHY}"
    assert scenario.submit(3) == []
    assert scenario.why(3) == f"job 1 has exclusive use of host0: {WHY}"
    view = scenario.machine.view()
    assert (view.devices["host0"].alone, view.jobs[1].alone) == (1, WHY)
    assert GrantTurn(1, 2) in scenario.exit(1)
    assert scenario.machine.view().devices["host0"].alone is None


def test_it_is_not_asked_for_its_turn_any_more(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    scenario.want(1)
    assert {RequestYield, NameSuccessor} <= kinds(scenario.want(2))
    assert {WithdrawYield(1), NameSuccessor(1, 1, None)} <= set(alone(scenario, 1))
    assert alone(scenario, 1) == [], "the same again changes nothing"
    scenario.at(120_000)
    assert not kinds(scenario.last) & {RequestYield, WatchIdle}
    scenario.release(1)
    assert scenario.want(1) == [GrantTurn(1, 1)], "the other, which has waited longer, is not considered"


def test_who_computes_beside_it_is_asked_to_let_go_and_forced_in_the_end() -> None:
    scenario = one_device(policy="pack")
    for job in (1, 2):
        scenario.start(job, estimate=estimate(100, 100))
        assert scenario.want(job) == [GrantTurn(job, job)], "side by side"
    assert alone(scenario, 1) == [RequestYield(2)]
    scenario.at(60_000)
    assert scenario.last == [RequestYield(2, forced=True)]
    assert scenario.release(2) == []
    assert scenario.want(2) == []
    assert GrantTurn(2, 2) in scenario.exit(1)


def test_a_turn_that_was_passed_meanwhile_is_asked_back(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    scenario.want_each(1, 2)
    alone(scenario, 1)
    assert RequestYield(2) in scenario.pass_(1, 2)
    scenario.want(1)
    assert GrantTurn(1, 1) in scenario.release(2)


def test_of_two_the_first_has_it_and_the_second_waits(scenario: Scenario) -> None:
    scenario.start_each(1, 2, 3)
    alone(scenario, 2)
    alone(scenario, 1)
    assert scenario.want(1) == []
    assert scenario.why(1).startswith("job 2 has exclusive use of host0")
    scenario.want(3)
    assert GrantTurn(1, 1) in scenario.exit(2)
    assert scenario.why(3).startswith("job 1 has exclusive use of host0")


def test_a_process_that_is_gone_does_not_keep_the_device(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    alone(scenario, 1)
    scenario.want(2)
    assert GrantTurn(1, 2) in scenario.send(events.Detached(1))
    assert scenario.job(1).alone is None


def test_its_other_processes_keep_the_device(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    alone(scenario, 1)
    scenario.want(2)
    assert scenario.send(events.Detached(1, alone="several")) == []
    assert scenario.why(2) == "job 1 has exclusive use of host0: several"
    assert scenario.send(events.Attached(1)) == []
    assert GrantTurn(1, 2) in scenario.exit(1)


def test_one_submitted_as_exclusive_keeps_the_device_all_the_same(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(1, 1), exclusive=True)
    alone(scenario, 1)
    scenario.submit(2)
    assert scenario.why(2) == f"job 1 has exclusive use of host0: {WHY}"
    scenario.send(events.Detached(1))
    assert scenario.why(2) == "job 1 has exclusive use of host0"


def test_those_it_holds_off_leave_for_it_at_once() -> None:
    scenario = crowded()
    build(scenario, 1, 100)
    build(scenario, 2, 700)
    scenario.want(2)
    scenario.release(2)
    scenario.want(2)
    scenario.release(2)
    alone(scenario, 1)
    scenario.want(1)
    assert scenario.ask(1, P, 900) == [Offload(2)], "it has just computed, but cannot go on anyway"
    assert GrantMemory(1, Memory(900 * MIB), P) in scenario.send(events.Offloaded(2))


def test_without_oversubscription_they_leave_when_it_cannot_go_on_otherwise(scenario: Scenario) -> None:
    build(scenario, 1, 100)
    build(scenario, 2, 700)
    alone(scenario, 1)
    assert Offload(2) in scenario.ask(1, P, 900)
    assert GrantMemory(1, Memory(900 * MIB), P) in scenario.send(events.Offloaded(2))


def test_requests_of_those_it_holds_off_bother_nobody() -> None:
    scenario = crowded()
    build(scenario, 1, 500)
    scenario.start(2)
    alone(scenario, 1)
    assert scenario.ask(2, P, 800) == []
    scenario.at(120_000)
    assert scenario.last == []
    assert scenario.why(2).startswith("job 1 has exclusive use of host0")
    assert GrantMemory(2, Memory(800 * MIB), P) in scenario.exit(1)


def test_a_newcomer_that_is_alone_grows_although_another_is_being_measured(scenario: Scenario) -> None:
    scenario.start(1, persistent=100)
    scenario.start(2)
    assert scenario.ask(2, P, 100) == [], "job 1 is measured first"
    assert GrantMemory in kinds(alone(scenario, 2))


def test_memory_that_must_stay_is_no_victim() -> None:
    scenario = crowded()
    build(scenario, 1, 400)
    build(scenario, 2, 400)
    scenario.at(5_000)
    stays(scenario, 1)
    scenario.start(3)
    assert [command for command in scenario.ask(3, P, 550) if isinstance(command, Offload)] == [Offload(2)]
    scenario.send(events.Offloaded(2))
    assert scenario.job(3).granted.persistent >= 550 * MIB
    assert scenario.job(1).immovable == "shared"


def test_the_others_go_on_while_it_waits_for_memory_that_must_stay(scenario: Scenario) -> None:
    build(scenario, 1, 100)
    build(scenario, 2, 700)
    stays(scenario, 2)
    scenario.want_each(1, 2)
    alone(scenario, 1)
    commands = scenario.ask(1, P, 900)
    assert RequestYield(1, forced=True) in commands, "it waits in its allocator"
    assert GrantTurn(1, 2) in scenario.release(1)
    assert GrantMemory(1, Memory(900 * MIB), P) in scenario.exit(2)


def test_where_nobody_could_ever_go_on_the_last_one_fails(scenario: Scenario) -> None:
    for job in (1, 2):
        build(scenario, job, 400)
        stays(scenario, job)
    scenario.send(events.Sampled(1, Usage(iterations=5)))
    assert scenario.ask(1, P, 700) == []
    (answer,) = [command for command in scenario.ask(2, P, 700) if isinstance(command, DenyMemory)]
    assert answer.job == 2 and "none of it can be moved" in answer.reason.text


def test_one_that_cannot_be_moved_goes_on_though_the_first_of_its_lane_finds_no_room() -> None:
    scenario = one_device(oversubscribe=Oversubscribe.AUTO, settings=replace(FREE, policy="fifo"))
    build(scenario, 1, 600)
    build(scenario, 2, 60)
    stays(scenario, 2)
    scenario.at(5_000)
    build(scenario, 3, 500)
    stays(scenario, 3)
    scenario.want(2)
    scenario.ask(2, E, 100)
    scenario.release(2)
    state = scenario.machine._state
    set_aside(state, state.jobs[2], Memory(60 * MIB, 0))  # as for a claim that has been met since
    assert GrantTurn not in kinds(scenario.want(1))
    assert scenario.why(1).startswith("its memory was moved to the host store; needs")
    assert GrantTurn(1, 2) in scenario.want(2)
    assert scenario.job(2).granted.ephemeral >= 100 * MIB


def test_memory_of_others_is_waited_for_also_then(scenario: Scenario) -> None:
    for job in (1, 2):
        build(scenario, job, 100)
        stays(scenario, job)
    scenario.send(events.Sampled(1, Usage(iterations=5)))
    scenario.send(events.ForeignMemory("host0", 700 * MIB))
    scenario.ask(1, P, 250)
    assert not any(isinstance(command, DenyMemory) for command in scenario.ask(2, P, 350))


def test_a_place_beside_memory_that_must_stay_is_as_large_as_what_is_left() -> None:
    scenario = crowded()
    build(scenario, 1, 600)
    stays(scenario, 1)
    assert scenario.submit(2, estimate=estimate(500, 0)) == []
    assert scenario.submit(3, estimate=estimate(350, 0)) != []


def test_after_a_restart_the_one_that_computes_has_the_device(scenario: Scenario) -> None:
    scenario.send(events.RestartBegan())
    for job in (1, 2):
        scenario.send(events.Submitted(job, JobSpec(0)))
    for job, holds in ((1, False), (2, True)):
        found = (JobPhase.RUNNING, "host0", 7, Memory(100 * MIB, MIB), True, holds, not holds, False, Usage(), 0)
        scenario.send(events.Adopted(job, *found))
        assert alone(scenario, job) == []
    commands = scenario.send(events.RestartEnded())
    assert not kinds(commands) & {RequestYield, GrantTurn}
    assert scenario.why(1).startswith("job 2 has exclusive use of host0")


def test_a_lane_grows_for_it_alone() -> None:
    scenario = crowded()
    for job, mib in ((1, 100), (2, 700)):
        build(scenario, job, mib)
    alone(scenario, 1)
    scenario.want(1)
    assert Offload(2) in scenario.ask(1, E, 850)
    scenario.send(events.Offloaded(2))
    assert scenario.job(1).granted.ephemeral >= 850 * MIB


def test_a_job_that_has_not_attached_may_need_its_device_too(scenario: Scenario) -> None:
    """Processes that nobody speaks for; when they are gone the device is shared again."""
    scenario.submit(1)
    scenario.send(events.ProcessStarted(1))
    scenario.start(2)
    scenario.want(2)
    assert kinds(alone(scenario, 1)) == {RequestYield}
    scenario.send(events.TurnReleased(2, Cause.BOUNDARY, Usage()))
    assert scenario.want(2) == []
    assert scenario.why(2) == f"job 1 has exclusive use of host0: {WHY}"
    assert kinds(list(scenario.send(events.TraitsSeen(1)))) == {GrantTurn}


def test_memory_stays_only_where_somebody_has_attached(scenario: Scenario) -> None:
    scenario.submit(1)
    scenario.send(events.ProcessStarted(1))
    with pytest.raises(IllegalTransition, match="no process of the job has attached"):
        stays(scenario, 1)


def test_it_stops_no_job_of_another_user_and_none_of_theirs_that_comes() -> None:
    scenario = one_device(settings=FREE)
    for job, owner in ((1, 7), (2, 7), (3, 8)):
        scenario.start(job, owner, estimate=estimate(10, 10))
    scenario.want_each(1, 2, 3)
    told = alone(scenario, 1)
    assert scenario.machine.view().devices["host0"].alone == 1
    assert RequestYield(3) not in told and RequestYield(3, forced=True) not in told
    scenario.release(3)
    assert GrantTurn in kinds(list(scenario.want(3)))
    assert "exclusive use" in scenario.why(2)
    scenario.start(4, 9, estimate=estimate(10, 10))
    assert GrantTurn in kinds(list(scenario.want(4))), "user 8 is there, so user 9 comes too"
    assert "exclusive use" in _refused(scenario, 5, 7), "of its own user no new job comes"
    for job in (3, 4):
        scenario.exit(job)
    assert "exclusive use" in _refused(scenario, 6, 8), "now the device is its user's alone"


def _refused(scenario: Scenario, job: JobId, owner: int) -> str:
    scenario.submit(job, owner, estimate=estimate(10, 10))
    return scenario.why(job)
