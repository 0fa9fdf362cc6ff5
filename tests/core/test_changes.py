"""Jobs that are changed after their submission, and jobs that are requeued."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import Command, EndJob, RetryJob, SignalJob, StartJob
from carpool.core.model import JobPhase, JobSpec, Outcome, Settings
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate


def started(commands: list[Command]) -> list[int]:
    return [command.job for command in commands if isinstance(command, StartJob)]


def change(scenario: Scenario, job: int, **spec: Any) -> list[Command]:
    return scenario.send(events.JobChanged(job, JobSpec(0, **spec)))


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario(EVERY_BOUNDARY)
    scenario.device("host0", 1000)
    return scenario


def test_a_queued_job_gets_another_place_in_the_order() -> None:
    scenario = Scenario(Settings("srtf", max_jobs=1))
    scenario.device("host0", 1000)
    scenario.start(1, duration_us=1_000)
    for job in (2, 3):
        scenario.submit(job, duration_us=job * 1_000_000)
    change(scenario, 3, duration_us=1_000)
    assert started(scenario.exit(1)) == [3]


def test_what_a_job_waits_for_is_changed(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.start(2)
    scenario.submit(3, after=(1,))
    change(scenario, 3, after_any=(2,))
    assert scenario.why(3) == "waiting for job 2 to end"
    assert started(scenario.exit(1, code=1)) == [], "job 1 does not matter any more"
    assert scenario.job(3).phase is JobPhase.QUEUED
    change(scenario, 3, after=(2,))
    change(scenario, 3, after_any=(2,))
    assert started(scenario.exit(2, code=1)) == [3]


def test_a_job_may_begin_earlier_or_later(scenario: Scenario) -> None:
    scenario.submit(1, begin_us=5_000_000)
    change(scenario, 1, begin_us=9_000_000)
    assert started(scenario.at(8_999).last) == []
    assert started(change(scenario, 1)) == [1]
    assert scenario.at(20_000).last == [] or started(scenario.last) == []


def test_a_held_job_stays_held(scenario: Scenario) -> None:
    scenario.submit(1, held_by="alice")
    assert started(change(scenario, 1, weight=300)) == []
    assert scenario.job(1).weight == 300
    assert started(scenario.send(events.HoldChanged(1, None))) == [1]


def test_a_change_that_leaves_no_device_ends_the_job(scenario: Scenario) -> None:
    scenario.submit(1, held_by="alice")
    (end,) = change(scenario, 1, device="gpu7")
    assert isinstance(end, EndJob) and end.outcome is Outcome.REFUSED


def test_the_weight_of_a_running_job_is_changed(scenario: Scenario) -> None:
    for job in (1, 2):
        scenario.start(job)
    scenario.want(1)
    scenario.want(2)
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
    assert "to itself" in scenario.why(1)


def test_a_requeued_job_is_stopped_and_waits_behind_the_others(scenario: Scenario) -> None:
    scenario.start(1, exclusive=True, retries=1)
    scenario.submit(2, exclusive=True)
    assert scenario.send(events.RequeueRequested(1, "alice")) == [SignalJob(1, 15)]
    assert scenario.why(1) == "requeued by alice; waiting for its processes to end"
    commands = scenario.exit(1, signal=15, code=None)
    (again,) = [command for command in commands if isinstance(command, RetryJob)]
    assert (again.attempt, again.past.text, again.signal) == (2, "requeued by alice", 15)
    assert started(commands) == [2] and scenario.job(1).phase is JobPhase.QUEUED
    assert started(scenario.exit(2)) == [1]
    scenario.send(events.ProcessStarted(1))
    assert isinstance(scenario.exit(1, code=1)[0], RetryJob), "its retry is left"
    scenario.send(events.ProcessStarted(1))
    (end,) = scenario.exit(1, code=1)[:1]
    assert isinstance(end, EndJob) and end.reason is not None
    assert end.reason.text == (
        "attempt 3: exited with code 1; attempt 1 on host0: requeued by alice; attempt 2 on host0: exited with code 1"
    )


def test_a_job_that_ends_well_meanwhile_is_requeued_all_the_same(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.send(events.RequeueRequested(1, "alice"))
    assert started(scenario.exit(1)) == [1]


def test_cancelled_counts_more_than_requeued(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.send(events.RequeueRequested(1, "alice"))
    scenario.send(events.CancelRequested(1))
    (end,) = scenario.exit(1, signal=15, code=None)[:1]
    assert isinstance(end, EndJob) and end.outcome is Outcome.CANCELLED


def test_a_job_that_does_not_run_is_not_requeued(scenario: Scenario) -> None:
    scenario.submit(1, held_by="alice")
    assert scenario.send(events.RequeueRequested(1, "alice")) == []
    scenario.start(2)
    scenario.exit(2)
    assert scenario.send(events.RequeueRequested(2, "alice")) == []
