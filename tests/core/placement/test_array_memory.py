"""What the first trials of an array teach about the others: they start by it, and are newcomers no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.core import events
from carpool.core.commands import Command
from carpool.core.model import MIB, Memory, Settings, Usage
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate, one_device, started

ONE_AT_A_TIME = replace(EVERY_BOUNDARY, warm_limit=1, warm_timeout_us=600_000_000)


def made(mib: int = 1000, wanted: Settings = ONE_AT_A_TIME) -> Scenario:
    return one_device(mib, settings=wanted)


def trial(scenario: Scenario, job: int, **spec: Any) -> None:
    scenario.submit(job, array=1, **spec)
    scenario.send(events.ProcessStarted(job))


def used(scenario: Scenario, job: int, persistent: int, ephemeral: int, iterations: int = 0) -> list[Command]:
    """A turn of the job, and the peaks that its seat tells, in MiB."""
    scenario.send(events.Attached(job))
    scenario.want(job)
    usage = Usage(persistent_peak=persistent * MIB, ephemeral_peak=ephemeral * MIB, iterations=iterations)
    return scenario.send(events.Sampled(job, usage))


def test_elements_are_not_started_one_by_one_when_the_first_has_succeeded() -> None:
    scenario = made()
    trial(scenario, 1)
    others = [started(scenario.submit(job, array=1)) for job in (2, 3, 4)]
    assert others == [[], [], []] and "not been measured yet" in scenario.why(2)
    scenario.submit(5)
    assert started(scenario.exit(1)) == [2, 3, 4, 5], "of no array: the device has no newcomer now"
    assert started(scenario.submit(6)) == []
    assert started(scenario.submit(7, array=1)) == [7], "it comes later, and is known as well"


def test_one_that_found_its_work_done_teaches_nothing() -> None:
    scenario = made(wanted=replace(ONE_AT_A_TIME, warm_limit=2))
    for job in (1, 2):
        trial(scenario, job)
    scenario.submit_each(3, 4, 5, 6, 7, array=1)
    assert started(scenario.exit(1)) == [3], "its place"
    assert started(scenario.exit(2)) == [4, 5, 6, 7], "two are as many as may warm up at a time"


def test_what_a_trial_has_needed_is_reserved_for_the_others() -> None:
    scenario = made(1000)
    trial(scenario, 1)
    scenario.submit_each(2, 3, 4, 5, array=1)
    used(scenario, 1, 400, 99)
    assert scenario.job(2).phase == "starting", "the first one is no newcomer any more, and nothing was known by then"
    assert started(scenario.exit(1)) == [3, 4], "two of 400 MiB, and their lane"
    assert scenario.why(5).startswith("waiting for memory: needs 500 MiB (400 MiB persistent)")


def test_a_trial_that_is_measured_teaches_while_it_runs() -> None:
    scenario = made(1000)
    trial(scenario, 1)
    scenario.submit_each(2, 3, array=1)
    assert started(used(scenario, 1, 100, 40, iterations=2)) == []
    usage = Usage(persistent_peak=100 * MIB, ephemeral_peak=40 * MIB, iterations=3)
    assert started(scenario.send(events.Sampled(1, usage))) == [3]
    assert started(scenario.send(events.Sampled(1, usage))) == []


@pytest.mark.parametrize("code", [0, 1])
def test_only_those_that_succeed_without_the_device_say_that_none_is_needed(code: int) -> None:
    scenario = made()
    trial(scenario, 1)
    scenario.submit_each(2, 3, array=1)
    assert started(scenario.exit(1, code)) == ([2] if code else [2, 3])


def test_what_users_say_counts_more() -> None:
    scenario = made(1000)
    trial(scenario, 1)
    scenario.submit(2, array=1, estimate=estimate(900, 50))
    scenario.submit(3, array=1, estimate=estimate(940, 50, "hint"))
    used(scenario, 1, 10, 10)
    assert started(scenario.exit(1)) == []
    assert scenario.machine._state.jobs[3].spec.estimate == estimate(940, 50, "hint")


def test_an_array_that_fits_nowhere_by_its_trials_is_not_refused() -> None:
    """The estimate may be wrong: the elements are started as if nothing were known."""
    scenario = made(100)
    trial(scenario, 1)
    scenario.submit_each(2, 3, array=1)
    used(scenario, 1, 400, 0)
    assert started(scenario.exit(1)) == [] and "not been measured yet" in scenario.why(3)
    scenario.send(events.ProcessStarted(2))
    assert started(scenario.exit(2)) == [3]


@settings(max_examples=60, deadline=None)
@given(
    peaks=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=8),
    waiting=st.integers(1, 12),
    held=st.sets(st.integers(0, 11)),
    at_most=st.sampled_from([0, 3]),
)
def test_whoever_waits_is_believed_to_need_the_most_that_a_trial_has_needed(
    peaks: list[tuple[int, int]], waiting: int, held: set[int], at_most: int
) -> None:
    """Whatever the trials need, in which order they end, and who is held meanwhile; nothing of an array is left."""
    scenario = made(100_000, replace(ONE_AT_A_TIME, warm_limit=100))
    jobs = range(100, 100 + waiting)
    for job in range(len(peaks)):
        trial(scenario, job)
    for job in jobs:
        who = "ann" if job - 100 in held else None
        scenario.submit(job, array=1, at_most=at_most, held_by=who, begin_us=1)
    most = Memory()
    for job, (persistent, ephemeral) in enumerate(peaks):
        used(scenario, job, persistent, ephemeral, iterations=3)
        scenario.exit(job)
        most = Memory(max(most.persistent, persistent * MIB), max(most.ephemeral, ephemeral * MIB))
    for job in jobs:
        scenario.send(events.HoldChanged(job, None))
    scenario.at(1)
    step = EVERY_BOUNDARY.growth_step
    rounded = Memory(-(-most.persistent // step) * step, -(-most.ephemeral // step) * step)
    for job in jobs:
        waiting_job = scenario.machine._state.jobs[job]
        believed = waiting_job.spec.estimate
        assert (believed.memory if believed else None) == (rounded if most.total else None) or waiting_job.held_back
        assert (scenario.job(job).phase == "queued") == (
            at_most and job - 100 >= 3 and scenario.why(job).startswith("3 jobs")
        )
    for job in jobs:
        scenario.send(events.CancelRequested(job))
        if scenario.job(job).phase != "ended":
            scenario.exit(job)
    assert not scenario.machine._state.array_memory
