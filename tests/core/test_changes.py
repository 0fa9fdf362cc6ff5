"""Jobs that are changed after their submission, and jobs that are requeued."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import Command, EndJob, RetryJob, SignalJob, StartJob
from carpool.core.model import MIB, Allocation, DeviceSpec, JobPhase, JobSpec, Outcome, Settings
from tests.core.scenario import Scenario, estimate, one_device, only, started, started_on


def change(scenario: Scenario, job: int, **spec: Any) -> list[Command]:
    return scenario.send(events.JobChanged(job, JobSpec(0, **spec)))


def test_a_queued_job_gets_another_place_in_the_order() -> None:
    scenario = one_device(settings=Settings("srtf", max_jobs=1))
    scenario.start(1, duration_us=1_000)
    for job in (2, 3):
        scenario.submit(job, duration_us=job * 1_000_000)
    change(scenario, 3, duration_us=1_000)
    assert started(scenario.exit(1)) == [3]


def test_what_a_job_waits_for_is_changed(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    scenario.submit(3, after=(1,))
    change(scenario, 3, after_any=(2,))
    assert scenario.why(3) == "waiting for job 2 to end"
    assert started(scenario.exit(1, code=1)) == [], "job 1 does not matter any more"
    assert scenario.job(3).phase is JobPhase.QUEUED
    change(scenario, 3, after=(2,))
    change(scenario, 3, after_any=(2,))
    assert started(scenario.exit(2, code=1)) == [3]


def test_a_job_begins_when_its_time_has_come_which_may_be_changed(scenario: Scenario) -> None:
    for job in (1, 2):
        scenario.submit(job, begin_us=90_000_000)
    assert scenario.why(1) == "to start in 1m30s"
    change(scenario, 2, begin_us=95_000_000)
    assert started(scenario.exactly_at(90_000)) == [1]
    assert started(scenario.submit(3, begin_us=90_000_000)) == [3], "that is now"
    assert started(scenario.at(94_999).last) == []
    assert started(change(scenario, 2)) == [2]
    assert started(scenario.at(120_000).last) == []


def test_a_held_job_stays_held_and_a_change_that_leaves_no_device_ends_it(scenario: Scenario) -> None:
    scenario.submit_each(1, 2, held_by="alice")
    assert started(change(scenario, 1, weight=300)) == []
    assert scenario.job(1).weight == 300
    assert started(scenario.send(events.HoldChanged(1, None))) == [1]
    assert only(change(scenario, 2, device="gpu7"), EndJob).outcome is Outcome.REFUSED


def test_the_weight_of_a_running_job_is_changed(scenario: Scenario) -> None:
    scenario.start_each(1, 2)
    scenario.want_each(1, 2)
    change(scenario, 1, weight=400, name="urgent")
    assert (scenario.job(1).weight, scenario.job(1).name) == (400, "urgent")
    scenario.at(40).release(1, ms=40)
    scenario.want(1)
    scenario.at(80).release(2, ms=40)
    assert scenario.job(1).holder, "40 ms of it count as 10"


def test_what_an_attempt_has_taught_about_memory_stays(scenario: Scenario) -> None:
    scenario.start(1, estimate=estimate(100, 40))
    scenario.start(2)
    scenario.send(events.ProcessExited(1, 1, out_of_memory="it said so"))
    change(scenario, 1, weight=300)
    assert "exclusive use" in scenario.why(1)


def test_a_requeued_job_is_stopped_and_waits_behind_the_others(scenario: Scenario) -> None:
    scenario.start(1, exclusive=True, retries=1)
    scenario.submit(2, exclusive=True)
    assert scenario.send(events.RequeueRequested(1, "alice")) == [SignalJob(1, 15)]
    assert scenario.why(1) == "requeued by alice; waiting for its processes to end"
    commands = scenario.exit(1, signal=15, code=None)
    again = only(commands, RetryJob)
    assert (again.attempt, again.past.text, again.signal) == (2, "requeued by alice", 15)
    assert started(commands) == [2] and scenario.job(1).phase is JobPhase.QUEUED
    assert started(scenario.exit(2)) == [1]
    scenario.send(events.ProcessStarted(1))
    assert only(scenario.exit(1, code=1), RetryJob), "its retry is left"
    scenario.send(events.ProcessStarted(1))
    assert only(scenario.exit(1, code=1), EndJob).reason.text == (
        "attempt 3: exited with code 1; attempt 1 on host0: requeued by alice; attempt 2 on host0: exited with code 1"
    )


def test_a_job_that_ends_well_meanwhile_is_requeued_all_the_same_unless_it_is_cancelled(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.send(events.RequeueRequested(1, "alice"))
    assert started(scenario.exit(1)) == [1]
    scenario.send(events.ProcessStarted(1))
    scenario.send(events.RequeueRequested(1, "alice"))
    scenario.send(events.CancelRequested(1))
    assert only(scenario.exit(1, signal=15, code=None), EndJob).outcome is Outcome.CANCELLED


def test_a_job_that_does_not_run_is_not_requeued(scenario: Scenario) -> None:
    scenario.submit(1, held_by="alice")
    scenario.start(2)
    scenario.exit(2)
    for job in (1, 2):
        assert scenario.send(events.RequeueRequested(job, "alice")) == []


# Drained devices: nothing new is placed there, and what is there goes on


def drain(scenario: Scenario, device: str, why: str = "drained by root") -> list[Command]:
    return scenario.send(events.DeviceDrained(device, why))


def test_nothing_new_is_placed_and_what_is_there_goes_on(scenario: Scenario) -> None:
    scenario.start(1)
    assert drain(scenario, "host0", "drained by root: new fan") == []
    assert started_on(scenario.submit(2)) == []
    assert scenario.why(2) == "host0 is drained by root: new fan"
    scenario.want(1)
    assert scenario.job(1).holder
    scenario.send(events.DeviceAdded(DeviceSpec("host1", 1000 * MIB, drained="drained by root")))
    assert started_on(scenario.exit(1)) == [], "a device may come drained"
    assert started_on(drain(scenario, "host0", "")) == [(2, "host0")]


def test_others_are_used_instead_and_no_device_is_kept(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.submit(2, exclusive=True)
    scenario.start(3)
    scenario.at(61_000)
    assert "kept for job 2" in ((scenario.submit(4) and "") or scenario.why(4))
    drain(scenario, "host0")
    assert scenario.machine.view().devices["host0"].reservation is None
    assert started_on(scenario.device("host1", 1000)) == [(2, "host1")]
    drain(scenario, "host0", "")
    assert scenario.why(4) == ""


def test_the_reason_is_that_of_a_device_that_may_be_used(scenario: Scenario) -> None:
    scenario.device("host1", 1000)
    drain(scenario, "host1")
    scenario.start(1, exclusive=True)
    scenario.submit(2)
    assert scenario.why(2) == "job 1 has exclusive use of host0"
    assert scenario.machine.placement(2) is not None


def test_several_devices_are_not_gathered_from_drained_ones(scenario: Scenario) -> None:
    scenario.device("host1", 1000)
    drain(scenario, "host1")
    assert started_on(scenario.submit(1, gang=2)) == []
    scenario.at(100_000)
    assert started_on(scenario.submit(2)) == [(2, "host0")]
    drain(scenario, "host1", "")
    (start,) = scenario.exit(2)[-1:]
    assert isinstance(start, StartJob) and start.job == 1


# What a queued job may wait for beside devices: to be released, for a time, for other jobs to end in some way


def test_a_held_job_waits_until_it_is_released_and_says_who_holds_it(scenario: Scenario) -> None:
    assert started(scenario.submit(1, held_by="alice")) == []
    assert scenario.why(1) == "held by alice; carpool release 1 lets it start"
    assert started(scenario.send(events.HoldChanged(1, None))) == [1]
    assert scenario.send(events.HoldChanged(1, "bob")) == [], "it has been started meanwhile"
    assert scenario.job(1).phase is JobPhase.STARTING


def test_a_job_in_the_queue_is_held_and_keeps_its_age(scenario: Scenario) -> None:
    scenario.start(1, exclusive=True)
    scenario.submit_each(2, 3, exclusive=True)
    scenario.send(events.HoldChanged(2, "alice"))
    assert started(scenario.exit(1)) == [3]
    scenario.submit(4, exclusive=True)
    assert started(scenario.send(events.HoldChanged(2, None))) == []
    assert started(scenario.exit(3)) == [2]


def test_no_device_is_kept_for_a_held_job(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.submit(2, exclusive=True)
    scenario.start(3)
    scenario.at(61_000)
    assert scenario.machine.view().devices["host0"].jobs == (1, 3)
    assert started(scenario.submit(4)) == [] and "kept for job 2" in scenario.why(4)
    assert started(scenario.send(events.HoldChanged(2, "alice"))) == [4]


def test_all_that_keeps_a_job_back_has_to_go(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.submit(2, after_any=(1,), begin_us=1_000_000, held_by="alice")
    scenario.send(events.HoldChanged(2, None))
    assert scenario.why(2) == "waiting for job 1 to end"
    assert started(scenario.exit(1, code=3)) == []
    assert started(scenario.at(1_000).last) == [2]


@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        ("after", 0, None),
        ("after", 3, "job 1, which it waits for, ended: failed"),
        ("after_any", 0, None),
        ("after_any", 3, None),
        ("after_notok", 0, "job 1, which it waits for to fail, ended: succeeded"),
        ("after_notok", 3, None),
    ],
)
def test_a_job_starts_when_another_has_ended_as_it_should(
    scenario: Scenario, kind: str, code: int, says: str | None
) -> None:
    """Otherwise it ends: what can never come true is not waited for.  Late comers are told the same."""
    scenario.start(1)
    scenario.submit(2, **{kind: (1,)})
    for job, commands in ((2, scenario.exit(1, code=code)), (3, scenario.submit(3, **{kind: (1,)}))):
        if says is None:
            assert started(commands) == [job]
            continue
        (end,) = [command for command in commands if isinstance(command, EndJob) and command.job == job]
        assert (end.outcome, end.reason and end.reason.text) == (Outcome.REFUSED, says)


def test_the_reason_names_what_is_missing(scenario: Scenario) -> None:
    scenario.start_each(1, 2, 3)
    scenario.submit(4, after=(3,), after_any=(2, 3), after_notok=(1,))
    assert scenario.why(4) == "waiting for job 1 to fail, job 2 to end, job 3 to end, job 3"
    scenario.exit(2)
    assert scenario.why(4) == "waiting for job 1 to fail, job 3 to end, job 3"


def test_on_whole_devices_a_held_job_gets_none_and_nothing_is_drained() -> None:
    scenario = Scenario(Settings("fifo", allocation=Allocation.DEVICES))
    scenario.send(events.DeviceAdded(DeviceSpec("gpu0", 1)))
    with pytest.raises(ValueError, match="cannot be drained"):
        drain(scenario, "gpu0")
    scenario.submit_each(1, 2, 3)
    scenario.send(events.HoldChanged(1, "alice"))
    scenario.at(0)
    assert [scenario.job(job).phase for job in (1, 2, 3)] == [JobPhase.QUEUED, JobPhase.STARTING, JobPhase.QUEUED]
    scenario.send(events.HoldChanged(1, None))
    scenario.at(1)
    scenario.exit(2)
    scenario.at(2)
    assert scenario.job(1).phase is JobPhase.STARTING
