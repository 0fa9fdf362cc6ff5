"""Time limits: what stops a job, when, and how it ends; changed while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import Command, EndJob, RetryJob, SignalJob, TimeOut, WarnJob, WarnOfDeviceTime
from carpool.core.model import Allocation, DeviceSpec, JobPhase, JobSpec, Outcome, Settings, Usage
from tests.core.scenario import EVERY_BOUNDARY, Scenario, adopted, only

SECOND = 1_000_000
USR1, KILL, TERM = 10, 9, 15


def signals(commands: list[Command]) -> list[int]:
    return [command.signal for command in commands if isinstance(command, SignalJob | WarnJob | WarnOfDeviceTime)]


@pytest.mark.parametrize(("code", "signal"), [(0, None), (3, None), (None, 15)])
def test_at_its_limit_a_job_is_told_to_end_then_killed(
    scenario: Scenario, code: int | None, signal: int | None
) -> None:
    """However its process ends then, the job has timed out, and is not tried again."""
    scenario.start(1, time_us=5 * SECOND, retries=3)
    assert scenario.exactly_at(5_000) == [TimeOut(1, "reached its time limit of 5.0s"), SignalJob(1, TERM)]
    assert scenario.job(1).phase is JobPhase.STOPPING
    assert scenario.why(1) == "reached its time limit of 5.0s; waiting for its processes to end"
    assert signals(scenario.at(15_000).last) == [KILL]
    end = only(scenario.exit(1, code, signal), EndJob)
    assert (end.outcome, end.reason.text) == (Outcome.TIMED_OUT, "reached its time limit of 5.0s")
    assert scenario.machine.next_timer() is None


def test_a_job_that_ends_in_time_leaves_no_timer(scenario: Scenario) -> None:
    scenario.start(1, time_us=5 * SECOND, limit_signal=USR1, limit_signal_us=SECOND, device_time_us=SECOND)
    assert only(scenario.exit(1), EndJob).outcome is Outcome.SUCCEEDED
    assert scenario.at(20_000).last == []


def test_the_limit_counts_from_the_start_and_anew_for_each_attempt(scenario: Scenario) -> None:
    scenario.start(1, exclusive=True)
    scenario.submit(2, time_us=5 * SECOND, exclusive=True, retries=1)
    scenario.at(60_000).exit(1)
    scenario.send(events.ProcessStarted(2))
    scenario.at(64_000)
    assert only(scenario.exit(2, code=1), RetryJob)
    scenario.send(events.ProcessStarted(2))
    assert signals(scenario.exactly_at(69_000)) == [TERM]


def test_a_signal_comes_before_the_limit_once(scenario: Scenario) -> None:
    scenario.start(1, time_us=300 * SECOND, limit_signal=USR1, limit_signal_us=120 * SECOND)
    assert scenario.exactly_at(180_000) == [WarnJob(1, USR1)]
    assert signals(scenario.at(300_000).last) == [TERM]
    scenario.start(2, time_us=60 * SECOND, limit_signal=USR1, limit_signal_us=120 * SECOND)
    assert signals(scenario.at(300_000).last) == [USR1], "at once: the limit is nearer than that"


@pytest.mark.parametrize("warned", [False, True])
def test_device_time_is_limited_too(scenario: Scenario, warned: bool) -> None:
    """Time without a turn does not count; in a long turn nothing need be heard of the job.  A signal comes before."""
    warning = {"limit_signal": USR1, "limit_signal_us": 2 * SECOND} if warned else {}
    scenario.start_and_want(1, device_time_us=6 * SECOND, **warning)
    scenario.at(3_000).release(1, ms=3_000)
    assert scenario.at(100_000).last == []
    scenario.want(1)
    scenario.send(events.Sampled(1, scenario.usage(1)))
    assert scenario.exactly_at(101_000) == [WarnOfDeviceTime(1, USR1)] * warned
    assert scenario.at(102_999).last == []
    text = "reached its limit of 6.0s device time"
    assert scenario.at(103_000).last == [TimeOut(1, text), SignalJob(1, TERM)]
    assert only(scenario.exit(1), EndJob).outcome is Outcome.TIMED_OUT


def test_each_limit_is_warned_of_apart(scenario: Scenario) -> None:
    limits = {"time_us": 60 * SECOND, "device_time_us": 6 * SECOND}
    scenario.start_and_want(1, **limits, limit_signal=USR1, limit_signal_us=2 * SECOND)
    scenario.send(events.Sampled(1, scenario.usage(1)))
    assert scenario.at(4_000).last == [WarnOfDeviceTime(1, USR1)]
    scenario.release(1, ms=5_000)
    assert scenario.at(58_000).last == [WarnJob(1, USR1)]


def test_a_warning_whose_moment_has_passed_is_sent_at_once(scenario: Scenario) -> None:
    """When the process begins, or when the limit is set or changed."""
    near = {"device_time_us": 6 * SECOND, "limit_signal": USR1}
    scenario.submit(1, **near, limit_signal_us=10 * SECOND)
    assert scenario.send(events.ProcessStarted(1)) == [WarnOfDeviceTime(1, USR1)]
    scenario.start_and_want(2, device_time_us=100 * SECOND)
    scenario.at(5_000)
    scenario.release(2, ms=5_000)
    assert change(scenario, 2, **near, limit_signal_us=2 * SECOND) == [WarnOfDeviceTime(2, USR1)]
    assert change(scenario, 2, **near, limit_signal_us=2 * SECOND) == [], "once for each limit"
    assert change(scenario, 2, **near | {"device_time_us": 50 * SECOND}, limit_signal_us=2 * SECOND) == []
    assert change(scenario, 2, **near, limit_signal_us=2 * SECOND) == [WarnOfDeviceTime(2, USR1)]


def test_after_a_restart_the_warning_of_device_time_is_not_repeated(scenario: Scenario) -> None:
    spec = JobSpec(0, device_time_us=6 * SECOND, limit_signal=USR1, limit_signal_us=2 * SECOND)
    used = Usage(device_us=5 * SECOND)
    first = restarted(spec, adopted_at(10_000, usage=used), 50_000)
    assert signals(first.at(50_000).last) == [USR1], "no daemon was there when it was due"
    warned = restarted(spec, adopted_at(10_000, usage=used, warned_of_device_time=True), 50_000)
    assert warned.at(50_000).last == []


def test_what_a_seat_says_counts(scenario: Scenario) -> None:
    scenario.start_and_want(1, device_time_us=2 * SECOND)
    commands = scenario.send(events.Sampled(1, Usage(device_us=2 * SECOND)))
    assert signals(commands) == [TERM]


def change(scenario: Scenario, job: int, **spec: Any) -> list[Command]:
    return scenario.send(events.JobChanged(job, JobSpec(0, **spec)))


def test_a_limit_is_changed_while_the_job_runs(scenario: Scenario) -> None:
    scenario.start(1, time_us=5 * SECOND)
    scenario.at(1_000)
    assert change(scenario, 1, time_us=10 * SECOND, limit_signal=USR1, limit_signal_us=SECOND) == []
    assert signals(scenario.exactly_at(9_000)) == [USR1]
    change(scenario, 1)
    assert scenario.at(100_000).last == []
    change(scenario, 1, time_us=5 * SECOND)
    assert signals(scenario.at(100_000).last) == [TERM], "that is over"
    assert change(scenario, 1) == [], "too late"
    assert only(scenario.exit(1), EndJob).outcome is Outcome.TIMED_OUT


def test_cancelled_counts_more(scenario: Scenario) -> None:
    scenario.start(1, time_us=SECOND)
    scenario.at(1_000)
    scenario.send(events.CancelRequested(1))
    assert only(scenario.exit(1, signal=TERM, code=None), EndJob).outcome is Outcome.CANCELLED


def adopted_at(started_ms: int, **found: Any) -> events.Adopted:
    return adopted(1, started_us=started_ms * 1000, **found)


def restarted(spec: JobSpec, found: events.Adopted, ms: int) -> Scenario:
    """A daemon that finds a job; ``last`` is what follows at once."""
    scenario = Scenario(EVERY_BOUNDARY)
    scenario.ms = ms
    scenario.send(events.RestartBegan())
    scenario.device("host0", 1000)
    scenario.send(events.Submitted(1, spec))
    scenario.send(found)
    scenario.last = scenario.send(events.RestartEnded())
    return scenario


@pytest.mark.parametrize(
    ("ms", "warned", "expected"),
    [
        (50_000, False, {89_999: [], 90_000: [USR1], 110_000: [TERM]}),
        (50_000, True, {110_000: [TERM]}),  # an earlier daemon has sent the other signal
        (95_000, False, {95_000: [USR1], 110_000: [TERM]}),  # no daemon was there when it was due
        (200_000, False, {200_000: [TERM]}),
    ],
    ids=["running", "warned", "late", "over"],
)
def test_after_a_restart_the_clock_goes_on(ms: int, warned: bool, expected: dict[int, list[int]]) -> None:
    spec = JobSpec(0, time_us=100 * SECOND, limit_signal=USR1, limit_signal_us=20 * SECOND)
    scenario = restarted(spec, adopted_at(10_000, warned=warned), ms)
    assert {when: signals(scenario.at(when).last) for when in expected} == expected


@pytest.mark.parametrize("limit", [{"time_us": SECOND}, {"device_time_us": SECOND}])
def test_what_happened_while_no_daemon_was_there_counts_more_than_a_limit_that_passed(limit: dict[str, int]) -> None:
    spec, used = JobSpec(0, **limit), {"usage": Usage(device_us=2 * SECOND)}
    ended = restarted(spec, adopted_at(0, over=True, **used), 200_000)
    assert signals(ended.at(201_000).last) == [], "how it ended is told some time later"
    assert only(ended.exit(1), EndJob).outcome is Outcome.SUCCEEDED
    requeued = restarted(spec, adopted_at(0, **used), 200_000)
    requeued.send(events.RequeueRequested(1, "alice"))
    requeued.at(200_000)
    assert only(requeued.exit(1), RetryJob)
    runs = restarted(spec, adopted_at(0, **used), 200_000)
    assert signals(runs.at(200_000).last) == [TERM]


def test_a_limit_that_moves_has_its_own_signal(scenario: Scenario) -> None:
    warning = {"limit_signal": USR1, "limit_signal_us": 20 * SECOND}
    scenario.start(1, time_us=100 * SECOND, **warning)
    assert signals(scenario.at(80_000).last) == [USR1]
    assert change(scenario, 1, time_us=100 * SECOND, weight=7, **warning) == []
    assert scenario.at(85_000).last == [], "it is the same limit"
    change(scenario, 1, time_us=200 * SECOND, **warning)
    assert signals(scenario.exactly_at(180_000)) == [USR1]
    assert signals(scenario.at(200_000).last) == [TERM]


def test_a_job_that_was_being_stopped_at_the_restart_has_timed_out() -> None:
    found = adopted_at(0, phase=JobPhase.STOPPING, timed_out="reached its time limit of 1s")
    scenario = restarted(JobSpec(0, time_us=SECOND), found, 5_000)
    assert signals(scenario.last) == [TERM], "the earlier daemon may have ended before it sent that"
    assert signals(scenario.at(15_000).last) == [KILL]
    end = only(scenario.exit(1), EndJob)
    assert (end.outcome, end.reason.code) == (Outcome.TIMED_OUT, "time_limit")


def test_on_whole_devices_too() -> None:
    scenario = Scenario(Settings("fifo", allocation=Allocation.DEVICES))
    scenario.send(events.DeviceAdded(DeviceSpec("gpu0", 1)))
    scenario.submit(1, time_us=5 * SECOND)
    scenario.submit(2, device_time_us=5 * SECOND)
    scenario.at(0).send(events.ProcessStarted(1))
    assert signals(scenario.at(5_000).last) == [TERM]
    scenario.exit(1)
    scenario.at(5_000).send(events.ProcessStarted(2))
    assert signals(scenario.at(10_000).last) == [TERM]


@pytest.mark.parametrize(
    "wrong", [{"time_us": 0}, {"device_time_us": -1}, {"limit_signal": 65}, {"limit_signal_us": -1}]
)
def test_limits_that_make_no_sense_are_refused(scenario: Scenario, wrong: dict[str, int]) -> None:
    scenario.start(1)
    spec = replace(JobSpec(0), **wrong)
    for event in (events.Submitted(2, spec), events.JobChanged(1, spec)):
        with pytest.raises(ValueError, match=next(iter(wrong)).removesuffix("_us")):
            scenario.send(event)
