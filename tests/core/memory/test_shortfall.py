"""Other programs need memory that jobs have: jobs leave, and come back when there is room again; none is ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core import events
from carpool.core.commands import Command, GrantMemory, RequestYield, SignalJob, WithdrawYield
from carpool.core.model import MIB, Cause, Memory, Oversubscribe
from carpool.core.state.device import GROWTH_FRACTION
from tests.core.scenario import E, P, Scenario, estimate, moved_out, one_device

TO_GROW = 1024 // GROWTH_FRACTION


@pytest.fixture(params=list(Oversubscribe))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return one_device(1024, oversubscribe=request.param)


def others_have(scenario: Scenario, mib: int) -> list[Command]:
    return scenario.send(events.ForeignMemory("host0", mib * MIB, mib * MIB))


def reserve(scenario: Scenario, mib: int) -> list[Command]:
    mode = scenario.machine.view().devices["host0"].oversubscribe
    return scenario.send(events.DeviceChanged("host0", None, mode, mib * MIB))


def resting(scenario: Scenario, job: int, mib: int) -> None:
    """It has so much of its own, and no turn."""
    scenario.start(job, estimate=estimate(mib, 0), persistent=mib)


def computing(scenario: Scenario) -> None:
    scenario.start_and_want(1)
    scenario.ask(1, P, 600)


@pytest.mark.parametrize("need", [others_have, reserve])
def test_a_job_leaves_for_other_programs_and_comes_back(scenario: Scenario, need: object) -> None:
    assert callable(need)
    for job in (1, 2):
        resting(scenario, job, 400)
    assert need(scenario, 150) == [], "there is room"
    (job,) = moved_out(need(scenario, 500))
    assert need(scenario, 501) == [], "one is enough"
    scenario.send(events.Offloaded(job))
    scenario.want(job)
    assert "other programs" in scenario.why(job)
    assert any(isinstance(command, GrantMemory) and command.job == job for command in need(scenario, 0))


def test_what_they_use_leaves_them_room_to_grow(scenario: Scenario) -> None:
    others_have(scenario, 100)
    device = scenario.machine.view().devices["host0"]
    assert (device.free, device.foreign) == ((1024 - 100 - TO_GROW) * MIB, (100 + TO_GROW) * MIB)
    reserve(scenario, 300)
    assert scenario.machine.view().devices["host0"].free == 724 * MIB, "what they use lies in the reserve"


def test_an_estimate_is_given_up_first(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(900, 0))
    assert reserve(scenario, 600) == []
    assert scenario.machine.view().devices["host0"].persistent == 0


def test_a_holder_is_asked_at_a_boundary_and_leaves_after_its_turn(scenario: Scenario) -> None:
    computing(scenario)
    assert RequestYield(1) in reserve(scenario, 500)
    assert WithdrawYield(1) in reserve(scenario, 0), "what was asked is taken back"
    assert RequestYield(1) in reserve(scenario, 500)
    assert moved_out(scenario.release(1, ms=5)) == [1]
    scenario.want(1)
    scenario.send(events.Offloaded(1))
    assert not scenario.job(1).holder and scenario.job(1).granted == Memory()


def test_a_holder_that_comes_to_no_boundary_is_forced(scenario: Scenario) -> None:
    computing(scenario)
    reserve(scenario, 500)
    assert RequestYield(1, forced=True) in scenario.at(60_000).last
    assert moved_out(scenario.release(1, ms=5, cause=Cause.FORCED)) == [1]


def test_what_cannot_be_moved_stays(scenario: Scenario) -> None:
    resting(scenario, 1, 600)
    scenario.send(events.TraitsSeen(1, immovable="it uses memory of other processes", alone=None))
    assert moved_out(reserve(scenario, 900)) == []
    assert scenario.job(1).granted == Memory(600 * MIB)


def test_nobody_leaves_for_what_jobs_have_beside_their_grants_or_others_may_still_need(scenario: Scenario) -> None:
    """It would not fit any more, and wait for good, although there is room for all that is there."""
    resting(scenario, 1, 1000)
    assert scenario.send(events.ForeignMemory("host0", 300 * MIB)) == []
    scenario.send(events.ForeignMemory("host0", 0))
    assert moved_out(others_have(scenario, 8)) == []
    scenario.want(1)
    assert scenario.job(1).holder


def test_a_holder_that_stays_with_most_of_its_memory_goes_on(scenario: Scenario) -> None:
    """Without its share of the lane it would wait for good, and others would not have what they need all the same."""
    scenario.start(1, estimate=estimate(700, 200))
    scenario.send(events.TraitsSeen(1, immovable="pinned", alone=None))
    scenario.want(1)
    scenario.ask(1, P, 700)
    scenario.ask(1, E, 200)
    assert others_have(scenario, 200) == []
    scenario.release(1, ms=5)
    scenario.want(1)
    assert scenario.job(1).holder


def test_who_would_not_even_fit_alone_keeps_no_one_waiting(scenario: Scenario) -> None:
    resting(scenario, 1, 700)
    for job in moved_out(reserve(scenario, 500)):
        scenario.send(events.Offloaded(job))
    scenario.want(1)
    scenario.start(2, estimate=estimate(50, 10))
    assert scenario.job(2).phase == "running"


def test_a_job_that_could_not_leave_is_asked_again(scenario: Scenario) -> None:
    resting(scenario, 1, 600)
    assert moved_out(reserve(scenario, 900)) == [1]
    assert moved_out(scenario.send(events.OffloadFailed(1, "no room"))) == []
    scenario.at(2_000)
    assert moved_out(scenario.last) == [1]


@given(steps=st.lists(st.tuples(st.sampled_from([others_have, reserve]), st.integers(0, 1024)), max_size=12))
def test_jobs_never_keep_what_others_are_left(steps: list[tuple[object, int]]) -> None:
    """Whatever others take, jobs have no more than is left; none is ended."""
    scenario = one_device(1024, oversubscribe=Oversubscribe.AUTO)
    for job in (1, 2, 3):
        resting(scenario, job, 200)
    for need, mib in steps:
        assert callable(need)
        commands = need(scenario, mib)
        for job in moved_out(commands):
            commands += scenario.send(events.Offloaded(job))
        assert not any(isinstance(command, SignalJob) for command in commands)
        device = scenario.machine._state.devices["host0"]
        assert device.persistent <= device.spec.capacity - max(device.spec.reserve, device.unmanaged)
    others_have(scenario, 0)
    reserve(scenario, 0)
    for job in (1, 2, 3):
        scenario.want(job)
        if scenario.job(job).holder:
            scenario.release(job, ms=5)
        assert scenario.job(job).granted.persistent >= 200 * MIB
