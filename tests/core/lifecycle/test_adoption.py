"""After a restart of the daemon: what runs goes on, and nothing is decided before everything is known."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import EndJob, GrantTurn, MoveJob, NameSuccessor, OpenLane, ResizeLane, SignalJob
from carpool.core.events import IllegalTransition
from carpool.core.model import MIB, Cause, Estimate, JobPhase, JobSpec, Memory, Outcome, Usage
from tests.core.scenario import P, Scenario, adopted, only, started


def found(job: int, **changes: object) -> events.Adopted:
    granted, usage = Memory(100 * MIB, 200 * MIB), Usage(iterations=50, device_us=5_000_000)
    return adopted(job, **{"lane": 7, "granted": granted, "attached": True, "usage": usage, **changes})


@pytest.fixture
def restarting(scenario: Scenario) -> Scenario:
    """Jobs 1 to 4 were accepted before."""
    scenario.send(events.RestartBegan())
    for job in range(1, 5):
        assert scenario.send(events.Submitted(job, JobSpec(0))) == []
    return scenario


def test_what_runs_goes_on_and_what_waits_is_started(restarting: Scenario) -> None:
    assert restarting.send(found(1, holds_turn=True)) == []
    assert restarting.send(found(2, wants_turn=True, granted=Memory(50 * MIB, 300 * MIB))) == []
    commands = restarting.send(events.RestartEnded())
    assert commands[0] == ResizeLane(7, 300 * MIB), "the lane takes the size of the books"
    assert NameSuccessor(7, 1, 2) in commands
    assert not any(isinstance(c, OpenLane) for c in commands)
    assert started(commands) == [3, 4]
    assert restarting.machine.view().devices["host0"].free == (1000 - 150 - 300) * MIB


def test_a_job_that_could_not_begin_any_more_goes_on(scenario: Scenario) -> None:
    """Estimates have been made to count since it began; one that waits is refused, when it is known that it does."""
    large = JobSpec(0, estimate=Estimate(Memory(1500 * MIB, 1 * MIB), "hint"))
    scenario.send(events.RestartBegan())
    for job in (1, 2):
        assert scenario.send(events.Submitted(job, large)) == []
    assert scenario.send(found(1, holds_turn=True)) == []
    ended = only(scenario.send(events.RestartEnded()), EndJob)
    assert (ended.job, ended.outcome, ended.reason.code) == (2, Outcome.REFUSED, "too_large")
    assert scenario.machine.view().jobs[1].phase == "running"


def test_a_free_lane_goes_to_whoever_waits_and_new_lanes_get_new_numbers(restarting: Scenario) -> None:
    restarting.send(found(1, wants_turn=True))
    assert GrantTurn(7, 1) in restarting.send(events.RestartEnded())
    for job in (1, 3, 4, 2):
        restarting.exit(job)
    assert restarting.submit(9)[0] == OpenLane(8, "host0", 0, 0)


def test_a_started_job_that_has_not_attached_gets_a_lane(restarting: Scenario) -> None:
    restarting.send(found(1, attached=False, lane=None, granted=Memory()))
    restarting.send(found(2))
    commands = restarting.send(events.RestartEnded())
    assert MoveJob(1, 7) in commands, "no second lane under fair, and no lane id twice"
    restarting.send(events.Attached(1))
    assert restarting.want(1) == [GrantTurn(7, 1)]


def test_packets_from_before_the_restart_are_ignored_and_requests_are_answered_again(restarting: Scenario) -> None:
    restarting.send(found(1))
    restarting.send(found(2, holds_turn=True))
    restarting.send(events.RestartEnded())
    assert restarting.send(events.TurnReleased(1, Cause.EARLY, Usage())) == []
    assert restarting.job(2).holder
    restarting.ask(1, P, 150)
    assert restarting.job(1).granted.persistent >= 150 * MIB


def test_an_offloaded_job_comes_back_with_what_it_had(restarting: Scenario) -> None:
    peaks = Usage(iterations=9, device_us=1, persistent_peak=70 * MIB, ephemeral_peak=30 * MIB)
    restarting.send(found(1, offloaded=True, granted=Memory(), usage=peaks, wants_turn=True))
    commands = restarting.send(events.RestartEnded())
    assert restarting.job(1).granted == Memory(70 * MIB, 30 * MIB)
    assert GrantTurn(7, 1) in commands


def test_a_job_that_was_being_cancelled_is_killed_in_the_end(restarting: Scenario) -> None:
    restarting.send(found(1, phase=JobPhase.STOPPING))
    restarting.send(events.RestartEnded())
    assert restarting.at(10_000).last[0] == SignalJob(1, 9)


def test_more_than_the_device_holds_is_lived_with(restarting: Scenario) -> None:
    """The device was made smaller: nobody loses memory, and nothing is placed until there is room."""
    restarting.send(found(1, granted=Memory(900 * MIB, 300 * MIB)))
    restarting.send(events.RestartEnded())
    assert restarting.machine.view().devices["host0"].free == 0
    assert restarting.ask(3, P, 10) == [] if restarting.job(3).attached else True
    restarting.exit(1)
    assert restarting.machine.view().devices["host0"].free == 1000 * MIB


def test_contradictions_are_refused(restarting: Scenario) -> None:
    restarting.send(found(1, holds_turn=True))
    with pytest.raises(IllegalTransition, match="both hold the turn of lane 7"):
        restarting.send(found(2, holds_turn=True))
    with pytest.raises(IllegalTransition, match="not a device of this daemon"):
        restarting.send(found(2, device="gpu0"))
    with pytest.raises(IllegalTransition, match="while the job is running"):
        restarting.send(found(1))
    restarting.send(events.RestartEnded())
    with pytest.raises(IllegalTransition, match="without RestartBegan"):
        restarting.send(events.RestartEnded())
