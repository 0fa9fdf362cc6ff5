"""Attempts: what is started again after a failure, where, how often, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import AllocateDevices, Command, EndJob, RetryJob, StartJob
from carpool.core.model import (
    MIB,
    Allocation,
    Attempt,
    DeviceSpec,
    Estimate,
    JobPhase,
    JobSpec,
    Memory,
    Outcome,
    Settings,
    Usage,
)
from carpool.sim.whole_devices.allocator import machine_for
from tests.core.scenario import EVERY_BOUNDARY, P, Scenario, estimate, of_kind, one_device, only, several_devices

SECOND = 1_000_000
SAID = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def short(scenario: Scenario, job: int) -> list[Command]:
    """The job's process, which has run, ends for want of memory."""
    if scenario.job(job).phase is JobPhase.STARTING:
        scenario.send(events.ProcessStarted(job))
    return scenario.send(events.ProcessExited(job, 1, out_of_memory=SAID))


def test_a_job_that_ran_out_of_memory_comes_back_alone_with_more_before_all_others(scenario: Scenario) -> None:
    """And without a pause."""
    scenario.start(1, estimate=estimate(100, 40), retries=3, retry_pause_us=SECOND)
    scenario.start(2)
    scenario.submit(3, exclusive=True)
    again = only(short(scenario, 1), RetryJob)
    assert (again.attempt, again.past.out_of_memory, again.code) == (2, True, 1)
    assert again.estimate == Estimate(Memory(150 * MIB, 60 * MIB), "recovery")
    assert scenario.job(1).phase is JobPhase.QUEUED and "exclusive use" in scenario.why(1)
    scenario.submit(4)
    assert scenario.job(4).phase is JobPhase.QUEUED and "kept for job 1" in scenario.why(4)
    commands = scenario.exit(2)
    assert only(commands, StartJob).job == 1
    assert scenario.machine.view().devices["host0"].alone == 1
    assert only(scenario.exit(1), EndJob).outcome is Outcome.SUCCEEDED
    assert scenario.machine.view().devices["host0"].alone == 3


@pytest.mark.parametrize("named", [{}, {"device": "host0"}], ids=["the largest device", "the only one it may use"])
def test_alone_on_the_largest_device_it_is_not_tried_again(scenario: Scenario, named: dict[str, str]) -> None:
    scenario.start(1, exclusive=True, **named)
    scenario.device("host1", 2000 if named else 500)
    end = only(short(scenario, 1), EndJob)
    assert (end.outcome, end.reason.code) == (Outcome.FAILED, "out_of_memory")
    assert "it had exclusive use of host0 (1000 MiB), and may use no larger device" in end.reason.text


@pytest.mark.parametrize("how", [{"exclusive": True}, {"checkpoint": True}], ids=["exclusive", "suspended"])
def test_what_foreign_processes_left_was_not_all_of_the_device(how: dict[str, Any]) -> None:
    """It comes back where they leave more than that, and not before."""
    scenario = Scenario(EVERY_BOUNDARY)
    scenario.send(events.DeviceAdded(DeviceSpec("host0", 1000 * MIB, checkpoint=True)))
    scenario.start(1, **how)
    scenario.send(events.ForeignMemory("host0", 300 * MIB))
    again = only(short(scenario, 1), RetryJob)
    assert again.past.outgrown == 700 * MIB
    why = "ran out of memory alone on 700 MiB, and other programs leave 700 MiB of host0"
    assert scenario.job(1).phase is JobPhase.QUEUED and scenario.why(1) == why
    assert scenario.send(events.ForeignMemory("host0", 400 * MIB)) == []
    assert only(scenario.send(events.ForeignMemory("host0", 0)), StartJob).device == "host0"
    assert "it had exclusive use of host0 (1000 MiB)" in only(short(scenario, 1), EndJob).reason.text


def test_a_gang_is_as_well_off_as_its_fullest_device() -> None:
    scenario = Scenario(EVERY_BOUNDARY)
    for name in ("host0", "host1"):
        scenario.device(name, 1000)
    scenario.start(1, gang=2)
    scenario.send(events.ForeignMemory("host1", 300 * MIB))
    assert only(short(scenario, 1), RetryJob).past.outgrown == 700 * MIB
    assert "other programs leave 700 MiB of host1" in scenario.why(1)
    assert only(scenario.send(events.ForeignMemory("host1", 0)), StartJob).further == ("host1",)


def test_what_would_not_fit_even_alone_is_not_tried_again(scenario: Scenario) -> None:
    scenario.start(1, persistent=2000)
    assert "asked for more than all of host0" in only(short(scenario, 1), EndJob).reason.text


@pytest.mark.parametrize("had", [0, 100])
def test_the_last_request_counts(scenario: Scenario, had: int) -> None:
    """The first is refused, and the script makes do with less; also where that is answered at once."""
    scenario.start(1, persistent=had)
    scenario.ask(1, P, 2000)
    scenario.ask(1, P, had - 10 if had else 10)
    assert only(short(scenario, 1), RetryJob).past.outgrown == 0


def test_three_times_on_ever_larger_devices_and_then_the_whole_story() -> None:
    scenario = one_device(100)
    scenario.start(1, estimate=estimate(10, 0))
    seen = []
    for number in range(3):
        seen.append(only(short(scenario, 1), StartJob).device)
        scenario.device(f"host{number + 1}", 100 * (number + 2))
    assert seen == ["host0", "host1", "host2"], "alone, and then on a larger one each time"
    end = only(short(scenario, 1), EndJob)
    assert end.outcome is Outcome.FAILED and "3 times already (max_recoveries)" in end.reason.text
    assert all(f"attempt {number}" in end.reason.text for number in (1, 2, 3, 4))


def test_other_failures_are_final_unless_retries_are_wanted(scenario: Scenario) -> None:
    scenario.start(1)
    assert only(scenario.exit(1, 1), EndJob)
    scenario.start(2, retries=2)
    scenario.submit(3, after=(2,))
    for code, signal in ((1, None), (None, 11)):
        assert only(scenario.exit(2, code, signal), RetryJob).attempt in (2, 3)
        scenario.send(events.ProcessStarted(2))
        assert scenario.job(3).phase is JobPhase.QUEUED
    ends = of_kind(scenario.exit(2, 7), EndJob)
    assert [(end.job, end.outcome) for end in ends] == [(2, Outcome.FAILED), (3, Outcome.REFUSED)]
    assert ends[0].reason.text == (
        "attempt 3: exited with code 7; attempt 1 on host0: exited with code 1; attempt 2 on host0: killed by signal 11"
    )


def test_a_retry_goes_to_the_end_of_the_queue_and_keeps_its_memory(scenario: Scenario) -> None:
    scenario.start(1, retries=1, exclusive=True, estimate=estimate(10, 5))
    scenario.submit_each(2, 3, exclusive=True)
    commands = scenario.exit(1, 1)
    assert only(commands, RetryJob).estimate == estimate(10, 5)
    assert only(commands, StartJob).job == 2
    assert scenario.machine.view().queue == (3, 1)
    assert scenario.job(1).submitted_us == 0


@pytest.mark.parametrize("exit_", [events.ProcessExited(1, 0), events.ProcessExited(1)], ids=["succeeded", "lost"])
def test_success_and_what_may_have_been_one_is_final(scenario: Scenario, exit_: events.ProcessExited) -> None:
    scenario.start(1, retries=5)
    assert isinstance(scenario.send(exit_)[0], EndJob)


def test_a_cancelled_job_is_never_started_again(scenario: Scenario) -> None:
    scenario.start(1, retries=5)
    scenario.send(events.CancelRequested(1))
    assert only(short(scenario, 1), EndJob).outcome is Outcome.CANCELLED
    scenario.start(2, retries=5, exclusive=True)
    scenario.submit(3, exclusive=True)
    scenario.exit(2, 1)
    assert only(scenario.send(events.CancelRequested(2)), EndJob).outcome is Outcome.CANCELLED


@pytest.mark.parametrize("waits", [True, False], ids=["it waits", "it starts"])
def test_what_is_heard_late_of_the_attempt_before_means_nothing(scenario: Scenario, waits: bool) -> None:
    scenario.start(1, retries=1, exclusive=True)
    if waits:
        scenario.submit(2, exclusive=True)
    scenario.exit(1, 1)
    assert scenario.job(1).phase is (JobPhase.QUEUED if waits else JobPhase.STARTING)
    late = [events.Detached(1), events.TurnWanted(1)]
    for event in (*late, events.ProcessExited(1, 1) if waits else events.Sampled(1, Usage())):
        assert scenario.send(event) == []


def test_a_restart_knows_the_attempts() -> None:
    scenario = Scenario(EVERY_BOUNDARY)
    scenario.send(events.RestartBegan())
    scenario.device("host0", 1000)
    failed, full = Attempt("exited with code 1", "host0"), Attempt("ran out of memory", "host0", True)
    for job, past in ((1, (failed,)), (2, ()), (3, (full,)), (4, (Attempt("full", "host0", True, 1000 * MIB),))):
        scenario.send(events.Submitted(job, JobSpec(0, retries=1), past=past))
    scenario.send(events.RestartEnded())
    assert scenario.job(4).outcome is Outcome.FAILED, "there is no larger device"
    assert scenario.machine.view().devices["host0"].alone == 3
    assert scenario.machine.view().queue == (2, 1)
    end = only(short(scenario, 3), EndJob)
    assert end.reason.text.endswith("; attempt 1 on host0: ran out of memory")


def test_whole_devices_retry_but_do_not_recover() -> None:
    machine = machine_for(Settings(policy="fifo", allocation=Allocation.DEVICES))
    for event in (events.DeviceAdded(DeviceSpec("gpu0", 0)), events.Submitted(1, JobSpec(0, retries=1))):
        machine.handle(event, 0)
    machine.handle(events.Submitted(2, JobSpec(0)), 0)
    machine.handle(events.Tick(), 0)
    assert only(machine.handle(events.ProcessExited(1, 1), 1), RetryJob).attempt == 2
    machine.check()
    machine.handle(events.Tick(), 1)
    machine.check()
    assert machine.view().jobs[2].devices == ("gpu0",), "the retry waits behind it"
    end = only(machine.handle(events.ProcessExited(2, 1, out_of_memory=SAID), 2), EndJob)
    assert "it had exclusive use of its devices" in end.reason.text
    machine.handle(events.Tick(), 2)
    assert machine.view().jobs[1].devices == ("gpu0",)
    assert only(machine.handle(events.ProcessExited(1, 1), 3), EndJob).outcome is Outcome.FAILED
    machine.check()


def test_what_else_is_known_of_an_end_is_part_of_the_reason(scenario: Scenario) -> None:
    scenario.start(1)
    end = only(scenario.send(events.ProcessExited(1, signal=9, note="the kernel did it")), EndJob)
    assert end.reason.text == "killed by signal 9 (the kernel did it)"


def reservations(scenario: Scenario) -> dict[str, int | None]:
    return {name: device.reservation for name, device in scenario.machine.view().devices.items()}


def two_devices() -> Scenario:
    return several_devices(1000, 1000, placement="first-fit")


def test_it_is_overdue_once_however_long_it_then_waits() -> None:
    """It has a device kept for it at once, and is passed over besides."""
    scenario = two_devices()
    for job, device in ((1, None), (2, "b"), (3, "a")):
        scenario.start(job, device=device)
    short(scenario, 1)
    assert reservations(scenario) == {"a": 1, "b": None}
    scenario.submit(4, device="b")
    scenario.at(61_000)
    assert reservations(scenario) == {"a": 1, "b": None}, "not both"
    scenario.start(5, device="b")
    scenario.exit(3)
    assert scenario.job(1).device == "a" and reservations(scenario) == {"a": None, "b": None}


def test_who_waits_for_a_device_kept_for_another_is_overdue_once() -> None:
    scenario = two_devices()
    scenario.start_each(1, 2, 3, device="a")
    scenario.start(5, device="b")
    short(scenario, 1)
    short(scenario, 2)
    scenario.start(6, device="b")
    scenario.at(61_000)
    scenario.send(events.CancelRequested(2))
    scenario.exit(3)
    scenario.send(events.ProcessStarted(1))
    scenario.exit(1)
    assert reservations(scenario) == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("devices", "had"), [((1000, 1000, 2000), "a (1000 MiB)"), ((2000, 1000), "(1000 MiB)")], ids=["first", "last"]
)
def test_a_gang_is_not_tried_again_where_too_few_devices_are_larger(devices: tuple[int, ...], had: str) -> None:
    """Than the smallest that it had."""
    scenario = several_devices(*devices, placement="first-fit")
    scenario.start(1, gang=2)
    text = only(short(scenario, 1), EndJob).reason.text
    assert text.endswith(f"{had}, and may use 1 larger, of the 2 that it needs")
    assert set(reservations(scenario).values()) == {None}


def test_a_gang_gets_no_more_than_its_smallest_device_has() -> None:
    scenario = two_devices()
    scenario.device("c", 1500)
    scenario.device("d", 2000)
    scenario.start(1, gang=2, estimate=estimate(950, 40))
    scenario.send(events.Sampled(1, Usage(persistent_peak=1010 * MIB)))
    commands = short(scenario, 1)
    assert only(commands, RetryJob).estimate.memory.total == 1500 * MIB
    assert (only(commands, StartJob).device, only(commands, StartJob).further) == ("c", ("d",))


def test_the_room_to_spare_may_be_missing_but_not_what_was_needed() -> None:
    for foreign, device in ((20, "a"), (400, None)):
        scenario = two_devices()
        scenario.start(1, device="a", estimate=estimate(700, 40))
        scenario.start(2, device="a")
        scenario.send(events.ForeignMemory("a", foreign * MIB))
        short(scenario, 1)
        assert reservations(scenario) == {"a": None if device is None else 1, "b": None}
        scenario.exit(2)
        assert scenario.job(1).device == device
        assert scenario.job(1).reserved.total == (980 * MIB if device else 0)


def test_each_attempt_believes_estimates_as_the_settings_say() -> None:
    scenario = Scenario(replace(EVERY_BOUNDARY, use_estimates=0))
    scenario.device("a", 1000)
    scenario.start(1, retries=1, estimate=estimate(900, 10))
    scenario.exit(1, 1)
    assert scenario.job(1).reserved.total == 0
    scenario.send(events.CancelRequested(1))
    scenario.send(events.ProcessExited(1))
    scenario.start(2, retries=1, estimate=estimate(1500, 10))
    scenario.send(events.SettingsChanged(EVERY_BOUNDARY))
    assert only(scenario.exit(2, 1), StartJob).job == 2, "it was taken on without"


# Pauses between attempts


def fails(scenario: Scenario, job: int) -> list[Command]:
    return scenario.exit(job, 1)


def later(scenario: Scenario, ms: int) -> list[Command]:
    """What follows while this time passes."""
    return scenario.at(scenario.ms + ms).last


def test_each_further_attempt_waits_twice_as_long(scenario: Scenario) -> None:
    scenario.start(1, retries=20, retry_pause_us=SECOND)
    for pause_s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300):
        fails(scenario, 1)
        assert scenario.job(1).phase is JobPhase.QUEUED and "after a pause of" in scenario.why(1)
        assert later(scenario, pause_s * 1000 - 1) == []
        assert only(later(scenario, 1), StartJob).job == 1


def test_nobody_waits_for_a_job_that_pauses(scenario: Scenario) -> None:
    scenario.start(1, exclusive=True, retries=1, retry_pause_us=SECOND)
    scenario.submit(2)
    assert only(fails(scenario, 1), StartJob).job == 2
    scenario.submit(3, exclusive=True)
    later(scenario, 1000)
    assert scenario.job(1).phase is JobPhase.QUEUED and "pause" not in scenario.why(1)
    assert only(scenario.exit(2), StartJob).job == 3, "it waits behind all that came meanwhile"


def test_a_job_that_pauses_is_untouched_by_another_policy_and_can_be_cancelled(scenario: Scenario) -> None:
    scenario.start(1, retries=2, retry_pause_us=SECOND)
    fails(scenario, 1)
    assert scenario.send(events.SettingsChanged(replace(EVERY_BOUNDARY, policy="srtf"))) == []
    assert only(later(scenario, 1000), StartJob).job == 1
    fails(scenario, 1)
    assert only(scenario.send(events.CancelRequested(1)), EndJob).outcome is Outcome.CANCELLED
    assert later(scenario, 5000) == []


def test_what_is_left_of_a_pause_outlives_a_restart(scenario: Scenario) -> None:
    spec = JobSpec(1000, retries=3, retry_pause_us=SECOND)
    scenario.send(events.RestartBegan())
    scenario.send(events.Submitted(7, spec, 9 * SECOND, (Attempt("exited with code 1"),), SECOND // 4))
    scenario.send(events.RestartEnded())
    assert scenario.job(7).phase is JobPhase.QUEUED and "attempt 1 failed" in scenario.why(7)
    assert later(scenario, 249) == [] and only(later(scenario, 1), StartJob).job == 7


def test_whole_devices_are_not_kept_for_a_job_that_pauses() -> None:
    scenario = Scenario(replace(EVERY_BOUNDARY, allocation=Allocation.DEVICES))
    scenario.device("gpu0", 1)
    scenario.submit(1, retries=1, retry_pause_us=SECOND)
    later(scenario, 1)
    scenario.send(events.ProcessStarted(1))
    fails(scenario, 1)
    scenario.send(events.SettingsChanged(replace(EVERY_BOUNDARY, allocation=Allocation.DEVICES, policy="srtf")))
    assert later(scenario, 999) == [] and "pause" in scenario.why(1)
    assert only(later(scenario, 1), AllocateDevices).job == 1


def test_no_pause_is_negative(scenario: Scenario) -> None:
    for spec in (JobSpec(1000, retry_pause_us=-1), JobSpec(1000, retries=-1)):
        with pytest.raises(ValueError, match="must be at least 0"):
            scenario.send(events.Submitted(7, spec))
    with pytest.raises(ValueError, match="must not be negative"):
        scenario.send(events.Submitted(7, JobSpec(1000), pause_us=-1))
