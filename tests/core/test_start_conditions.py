"""What a queued job may wait for beside devices: to be released, for a time, for other jobs to end in some way."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import EndJob, StartJob
from carpool.core.model import Allocation, DeviceSpec, JobPhase, Outcome, Settings
from tests.core.scenario import EVERY_BOUNDARY, Scenario


def started(commands: list[object]) -> list[int]:
    return [command.job for command in commands if isinstance(command, StartJob)]


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario(EVERY_BOUNDARY)
    scenario.device("host0", 1000)
    return scenario


def test_a_held_job_waits_until_it_is_released_and_says_who_holds_it(scenario: Scenario) -> None:
    assert started(scenario.submit(1, held_by="alice")) == []
    assert scenario.why(1) == "held by alice; carpool release 1 lets it start"
    assert started(scenario.send(events.HoldChanged(1, None))) == [1]
    assert scenario.send(events.HoldChanged(1, "bob")) == [], "it has been started meanwhile"
    assert scenario.job(1).phase is JobPhase.STARTING


def test_a_job_in_the_queue_is_held_and_keeps_its_age(scenario: Scenario) -> None:
    scenario.start(1, exclusive=True)
    for job in (2, 3):
        scenario.submit(job, exclusive=True)
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


def test_a_held_job_can_be_cancelled(scenario: Scenario) -> None:
    scenario.submit(1, held_by="alice")
    (end,) = scenario.send(events.CancelRequested(1))
    assert isinstance(end, EndJob) and end.outcome is Outcome.CANCELLED


def test_a_job_begins_when_its_time_has_come(scenario: Scenario) -> None:
    scenario.submit(1, begin_us=90_000_000)
    assert scenario.why(1) == "to start in 1m30s"
    assert started(scenario.at(89_999).last) == []
    assert started(scenario.at(90_000).last) == [1]
    assert started(scenario.submit(2, begin_us=90_000_000)) == [2], "that is now"


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
    for job in (1, 2, 3):
        scenario.start(job)
    scenario.submit(4, after=(3,), after_any=(2, 3), after_notok=(1,))
    assert scenario.why(4) == "waiting for job 1 to fail, job 2 to end, job 3 to end, job 3"
    scenario.exit(2)
    assert scenario.why(4) == "waiting for job 1 to fail, job 3 to end, job 3"


def test_on_whole_devices_a_held_job_gets_none() -> None:
    scenario = Scenario(Settings("fifo", allocation=Allocation.DEVICES))
    scenario.send(events.DeviceAdded(DeviceSpec("gpu0", 1)))
    for job in (1, 2, 3):
        scenario.submit(job)
    scenario.send(events.HoldChanged(1, "alice"))
    scenario.at(0)
    assert [scenario.job(job).phase for job in (1, 2, 3)] == [JobPhase.QUEUED, JobPhase.STARTING, JobPhase.QUEUED]
    scenario.send(events.HoldChanged(1, None))
    scenario.at(1)
    scenario.exit(2)
    scenario.at(2)
    assert scenario.job(1).phase is JobPhase.STARTING
