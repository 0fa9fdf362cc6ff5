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
from carpool.core.model import MIB, Cause, JobId, JobSpec, Memory, Oversubscribe, Usage
from tests.core.scenario import FREE, E, P, Scenario, adopted, estimate, of_kind, one_device

WHY = "its processes communicate by NCCL"


def alone(scenario: Scenario, job: JobId) -> list[Command]:
    return list(scenario.send(events.TraitsSeen(job, alone=WHY)))


def stays(scenario: Scenario, job: JobId) -> list[Command]:
    return list(scenario.send(events.TraitsSeen(job, immovable="shared")))


def kinds(commands: list[Command]) -> set[type]:
    return {type(command) for command in commands}


def crowded() -> Scenario:
    return one_device(oversubscribe=Oversubscribe.AUTO, settings=FREE)


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


def test_a_process_that_is_gone_does_not_keep_the_device_but_its_others_do(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    alone(scenario, 1)
    scenario.want(2)
    assert scenario.send(events.Detached(1, alone="several")) == []
    assert scenario.why(2) == "job 1 has exclusive use of host0: several"
    assert scenario.send(events.Attached(1)) == []
    assert GrantTurn(1, 2) in scenario.send(events.Detached(1))
    assert scenario.job(1).alone is None


def test_one_submitted_as_exclusive_keeps_the_device_all_the_same(scenario: Scenario) -> None:
    scenario.start(1, exclusive=True)
    alone(scenario, 1)
    scenario.submit(2)
    assert scenario.why(2) == f"job 1 has exclusive use of host0: {WHY}"
    scenario.send(events.Detached(1))
    assert scenario.why(2) == "job 1 has exclusive use of host0"


@pytest.mark.parametrize("mode", [Oversubscribe.AUTO, Oversubscribe.OFF])
def test_those_it_holds_off_leave_for_it_at_once(mode: Oversubscribe) -> None:
    """Though they have just computed: they cannot go on anyway.  Without oversubscription, too."""
    scenario = one_device(oversubscribe=mode, settings=FREE)
    scenario.build_each(100, 700, estimate=estimate(0, 0))
    for _ in range(2):
        scenario.want(2)
        scenario.release(2)
    alone(scenario, 1)
    scenario.want(1)
    assert scenario.ask(1, P, 900) == [Offload(2)]
    assert GrantMemory(1, Memory(900 * MIB), P) in scenario.send(events.Offloaded(2))


def test_a_lane_grows_for_it_alone() -> None:
    scenario = crowded()
    scenario.build_each(100, 700, estimate=estimate(0, 0))
    alone(scenario, 1)
    scenario.want(1)
    assert Offload(2) in scenario.ask(1, E, 850)
    scenario.send(events.Offloaded(2))
    assert scenario.job(1).granted.ephemeral >= 850 * MIB


def test_requests_of_those_it_holds_off_bother_nobody() -> None:
    scenario = crowded()
    scenario.build(1, 500, estimate=estimate(0, 0))
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
    scenario.build_each(400, 400, estimate=estimate(0, 0))
    scenario.at(5_000)
    stays(scenario, 1)
    scenario.start(3)
    assert [command for command in scenario.ask(3, P, 550) if isinstance(command, Offload)] == [Offload(2)]
    scenario.send(events.Offloaded(2))
    assert scenario.job(3).granted.persistent >= 550 * MIB
    assert scenario.job(1).immovable == "shared"


def test_the_others_go_on_while_it_waits_for_memory_that_must_stay(scenario: Scenario) -> None:
    scenario.build_each(100, 700, estimate=estimate(0, 0))
    stays(scenario, 2)
    scenario.want_each(1, 2)
    alone(scenario, 1)
    commands = scenario.ask(1, P, 900)
    assert RequestYield(1, forced=True) in commands, "it waits in its allocator"
    assert GrantTurn(1, 2) in scenario.release(1)
    assert GrantMemory(1, Memory(900 * MIB), P) in scenario.exit(2)


@pytest.mark.parametrize(("mib", "foreign"), [(400, 0), (100, 700)], ids=["nobody could ever go on", "of others"])
def test_where_nobody_could_ever_go_on_the_last_one_fails(scenario: Scenario, mib: int, foreign: int) -> None:
    """Memory of others is waited for."""
    for job in (1, 2):
        scenario.build(job, mib, estimate=estimate(0, 0))
        stays(scenario, job)
    scenario.send(events.Sampled(1, Usage(iterations=5)))
    scenario.send(events.ForeignMemory("host0", foreign * MIB))
    assert scenario.ask(1, P, mib + 300) == []
    denied = of_kind(scenario.ask(2, P, mib + 300), DenyMemory)
    assert [answer.job for answer in denied] == [2] * (not foreign)
    assert foreign or "none of it can be moved" in denied[0].reason.text


def test_one_that_cannot_be_moved_goes_on_though_the_first_of_its_lane_finds_no_room() -> None:
    scenario = one_device(oversubscribe=Oversubscribe.AUTO, settings=replace(FREE, policy="fifo"))
    scenario.build_each(600, 60, estimate=estimate(0, 0))
    stays(scenario, 2)
    scenario.at(5_000)
    scenario.build(3, 500, estimate=estimate(0, 0))
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


def test_a_place_beside_memory_that_must_stay_is_as_large_as_what_is_left() -> None:
    scenario = crowded()
    scenario.build(1, 600, estimate=estimate(0, 0))
    stays(scenario, 1)
    assert scenario.submit(2, estimate=estimate(500, 0)) == []
    assert scenario.submit(3, estimate=estimate(350, 0)) != []


def test_after_a_restart_the_one_that_computes_has_the_device(scenario: Scenario) -> None:
    scenario.send(events.RestartBegan())
    for job in (1, 2):
        scenario.send(events.Submitted(job, JobSpec(0)))
    for job, holds in ((1, False), (2, True)):
        seat = {"lane": 7, "granted": Memory(100 * MIB, MIB), "attached": True}
        scenario.send(adopted(job, holds_turn=holds, wants_turn=not holds, **seat))
        assert alone(scenario, job) == []
    commands = scenario.send(events.RestartEnded())
    assert not kinds(commands) & {RequestYield, GrantTurn}
    assert scenario.why(1).startswith("job 2 has exclusive use of host0")


def test_a_job_that_has_not_attached_may_need_its_device_too(scenario: Scenario) -> None:
    """Processes that nobody speaks for; when they are gone the device is shared again."""
    scenario.submit(1)
    scenario.send(events.ProcessStarted(1))
    scenario.start_and_want(2)
    assert kinds(alone(scenario, 1)) == {RequestYield}
    scenario.send(events.TurnReleased(2, Cause.BOUNDARY, Usage()))
    assert scenario.want(2) == []
    assert scenario.why(2) == f"job 1 has exclusive use of host0: {WHY}"
    assert kinds(list(scenario.send(events.TraitsSeen(1)))) == {GrantTurn}
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
