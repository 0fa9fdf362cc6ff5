"""Paused jobs: they leave their device, stay away until they are resumed, and their limits stand still."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core import events
from carpool.core.commands import (
    Command,
    GrantMemory,
    GrantTurn,
    Offload,
    PreemptJob,
    RequestYield,
    SignalJob,
    StartJob,
)
from carpool.core.model import (
    MIB,
    STOP_SIGNAL,
    Allocation,
    Cause,
    DeviceSpec,
    JobPhase,
    Memory,
    Oversubscribe,
    Service,
    Settings,
)
from tests.core.scenario import EVERY_BOUNDARY, E, P, Scenario, moved_out, of_kind, one_device, only


@pytest.fixture(params=list(Oversubscribe))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return one_device(oversubscribe=request.param)


def pause(scenario: Scenario, job: int, by: str | None = "alice") -> list[Command]:
    return scenario.send(events.PauseChanged(job, by))


def computing(scenario: Scenario, job: int) -> None:
    """It has 300 MiB of its own, 100 MiB of its lane, and the turn."""
    scenario.start_and_want(job)
    scenario.ask(job, P, 300)
    scenario.ask(job, E, 100)
    assert scenario.job(job).holder


def lets_go(scenario: Scenario) -> list[Command]:
    """The only job computes, is paused, and gives its turn back."""
    computing(scenario, 1)
    pause(scenario, 1)
    return scenario.release(1, ms=5, cause=Cause.FORCED)


def test_a_paused_job_loses_its_turn_and_leaves_the_device(scenario: Scenario) -> None:
    computing(scenario, 1)
    assert pause(scenario, 1) == [RequestYield(1, forced=True)]
    assert scenario.why(1).startswith("paused by alice; carpool resume 1 lets it go on")
    assert Offload(1) in scenario.release(1, ms=5, cause=Cause.FORCED)
    scenario.want(1)
    scenario.send(events.Offloaded(1))
    device = scenario.machine.view().devices["host0"]
    assert (device.persistent, sum(scenario.machine.view().lanes[lane].size for lane in device.lanes)) == (0, 0)
    assert scenario.why(1).endswith("its memory is in the host store")
    assert scenario.at(3_600_000).last == [], "however long"
    commands = pause(scenario, 1, None)
    granted = only(commands, GrantMemory).memory
    assert granted.persistent >= 300 * MIB and granted.ephemeral >= 100 * MIB
    assert [command.job for command in of_kind(commands, GrantTurn)] == [1]


def test_others_have_the_device_meanwhile(scenario: Scenario) -> None:
    scenario.leave(lets_go(scenario))
    scenario.start_and_want(2)
    assert of_kind(scenario.ask(2, P, 900), GrantMemory)
    assert scenario.job(2).granted.persistent >= 900 * MIB


def test_resumed_before_it_has_left_it_stays(scenario: Scenario) -> None:
    computing(scenario, 1)
    pause(scenario, 1)
    pause(scenario, 1, None)
    assert moved_out(scenario.release(1, ms=5, cause=Cause.FORCED)) == []
    scenario.want(1)
    assert scenario.job(1).holder


def test_a_job_that_is_stopped_goes_on_to_its_end(scenario: Scenario) -> None:
    scenario.leave(lets_go(scenario))
    scenario.want(1)
    assert SignalJob(1, 15) in scenario.send(events.CancelRequested(1))
    assert scenario.job(1).holder and scenario.job(1).granted.persistent >= 300 * MIB


def test_a_request_of_a_paused_job_is_answered_when_it_goes_on(scenario: Scenario) -> None:
    computing(scenario, 1)
    scenario.release(1, ms=5)
    pause(scenario, 1)
    assert of_kind(scenario.ask(1, P, 400), GrantMemory) == []
    scenario.send(events.Offloaded(1))
    assert [command.answers for command in of_kind(pause(scenario, 1, None), GrantMemory)] == [P]


def test_memory_that_cannot_be_moved_stays_and_says_why(scenario: Scenario) -> None:
    computing(scenario, 1)
    scenario.send(events.TraitsSeen(1, immovable="it is shared"))
    pause(scenario, 1)
    assert moved_out(scenario.release(1, ms=5, cause=Cause.FORCED)) == []
    assert scenario.job(1).granted == Memory(scenario.job(1).granted.persistent, 0), "its share of the lane leaves"
    assert scenario.why(1).endswith("its memory stays on host0: it is shared")


def test_a_job_that_could_not_be_moved_is_asked_again(scenario: Scenario) -> None:
    lets_go(scenario)
    scenario.send(events.OffloadFailed(1, "no host memory"))
    assert "has not left host0 yet" in scenario.why(1)
    assert moved_out(scenario.exactly_at(1_000)) == [1]


def test_a_full_host_store_is_waited_for() -> None:
    scenario = one_device(host_store=100 * MIB)
    assert moved_out(lets_go(scenario)) == []
    scenario.send(events.SettingsChanged(replace(EVERY_BOUNDARY, host_store=400 * MIB)))
    assert moved_out(scenario.at(2_000).last) == [1]


def test_a_paused_job_that_has_its_device_to_itself_lets_others_compute(scenario: Scenario) -> None:
    computing(scenario, 1)
    scenario.start_and_want(2)
    scenario.send(events.TraitsSeen(1, alone="its processes talk"))
    pause(scenario, 1)
    scenario.release(2, ms=1)
    scenario.want(2)
    assert not scenario.job(2).holder, "the paused job has not let go yet"
    scenario.release(1, ms=5, cause=Cause.FORCED)
    assert scenario.job(2).holder
    scenario.want(1)
    pause(scenario, 1, None)
    scenario.release(2, ms=5)
    assert scenario.job(1).holder
    scenario.want(2)
    assert not scenario.job(2).holder


def test_a_queued_job_that_is_paused_does_not_start(scenario: Scenario) -> None:
    scenario.submit(1, held_by="alice")
    pause(scenario, 1)
    assert of_kind(scenario.send(events.HoldChanged(1, None)), StartJob) == []
    assert scenario.why(1) == "paused by alice; carpool resume 1 lets it start"
    assert len(of_kind(pause(scenario, 1, None), StartJob)) == 1


def test_the_time_limit_stands_still(scenario: Scenario) -> None:
    scenario.start(1, time_us=10_000_000)
    scenario.at(4_000)
    pause(scenario, 1)
    assert scenario.at(100_000).last == []
    pause(scenario, 1, None)
    assert SignalJob(1, 15) in scenario.exactly_at(106_000)


def test_services_are_not_paused(scenario: Scenario) -> None:
    scenario.submit(1, service=Service())
    with pytest.raises(ValueError, match="a worker of models is not paused"):
        pause(scenario, 1)


def test_on_whole_devices_a_paused_job_gives_them_back() -> None:
    scenario = Scenario(Settings("srtf", allocation=Allocation.DEVICES))
    scenario.send(events.DeviceAdded(DeviceSpec("gpu0", 1)))
    scenario.submit(1, duration_us=1_000_000)
    scenario.submit(2, duration_us=200_000_000)
    scenario.at(0).send(events.ProcessStarted(1))
    assert pause(scenario, 1) == [PreemptJob(1)]
    scenario.send(events.Preempted(1, scenario.usage(1)))
    scenario.at(1)
    assert scenario.job(2).phase is JobPhase.STARTING
    scenario.at(10_000)
    assert scenario.job(1).devices == ()
    pause(scenario, 1, None)
    scenario.at(10_001)
    scenario.send(events.Preempted(2, scenario.usage(2)))
    scenario.at(10_002)
    assert scenario.job(1).devices == ("gpu0",)


def test_a_job_that_has_its_device_to_itself_is_paused_while_it_waits_for_memory(scenario: Scenario) -> None:
    scenario.send(events.ForeignMemory("host0", 400 * MIB))
    scenario.start_and_want(1)
    scenario.ask(1, P, 300)
    scenario.send(events.TraitsSeen(1, alone="beside"))
    assert of_kind(scenario.ask(1, E, 500), GrantMemory) == []
    assert RequestYield(1, forced=True) in pause(scenario, 1)
    scenario.release(1, ms=5, cause=Cause.FORCED)
    pause(scenario, 1, None)
    scenario.want(1)
    assert of_kind(scenario.send(events.ForeignMemory("host0", 0)), GrantMemory)


def test_one_that_a_signal_has_stopped_says_what_ends_that(scenario: Scenario) -> None:
    text = "its process has been stopped by a signal; SIGCONT (scontrol resume, fg) lets it"
    computing(scenario, 1)
    pause(scenario, 1, STOP_SIGNAL)
    assert scenario.why(1).startswith(f"{text} go on")
    pause(scenario, 1, None)
    scenario.submit(2, after=(1,))
    pause(scenario, 2, STOP_SIGNAL)
    assert scenario.why(2) == f"{text} start"
