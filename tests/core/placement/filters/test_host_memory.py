"""The machine's own memory: who may start beside whom, and what is expected of jobs that have little yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import Command
from carpool.core.model import MIB, DeviceSpec, Sharing
from carpool.core.state.use import MOST_KINDS, UNKNOWN, HostUse
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate, one_device, started

GUESS = UNKNOWN // MIB
EAGER = replace(EVERY_BOUNDARY, warm_limit=100)


def made(free: int, settings: Any = EAGER, cores: int = 1) -> Scenario:
    """``free``: MiB of the machine's."""
    scenario = one_device(settings=settings)
    measure(scenario, free, cores=cores)
    return scenario


def measure(scenario: Scenario, free: int, *, cores: int = 1, idle: tuple[int, ...] = (), **jobs: int) -> list[Command]:
    """``jobs``: MiB that each has, as in ``j1=200``."""
    used = {int(name[1:]): size * MIB for name, size in jobs.items()}
    return scenario.send(events.HostMeasured(free * MIB, cores, used, idle))


def submitted(scenario: Scenario, *jobs: int, **spec: Any) -> list[int]:
    return [job for number in jobs for job in started(scenario.submit(number, **spec))]


def test_jobs_that_have_little_yet_count_as_what_they_are_going_to_need() -> None:
    scenario = made(2 * GUESS + 10)
    assert submitted(scenario, 1, 2, 3, 4) == [1, 2]
    assert scenario.why(3) == (
        f"needs {GUESS} MiB of the machine's memory; the machine has {2 * GUESS + 10} MiB of its own memory left"
        f" beyond its reserve, of which started jobs are expected to take {2 * GUESS} MiB more"
    )
    for job in (1, 2):
        scenario.send(events.ProcessStarted(job))
    assert started(scenario.at(60_000).last) == [], "however late they warm up"
    assert measure(scenario, 2 * GUESS - 90, j1=50, j2=50) == [], "what they have is not expected any more"
    assert started(measure(scenario, 2 * GUESS, j1=GUESS, j2=50)) == [3]
    scenario.send(events.ProcessStarted(3))
    assert started(scenario.exit(1)) == [], "what it had is free when that has been measured"
    assert started(measure(scenario, 3 * GUESS)) == [4]


def test_earlier_runs_of_a_command_say_what_it_needs() -> None:
    scenario = made(10 * GUESS)
    assert submitted(scenario, 1, 2, kind="large") == [1, 2]
    measure(scenario, 5 * GUESS, j1=4 * GUESS, j2=GUESS)
    assert submitted(scenario, 3, kind="large") == [], "the second is going to need as much"
    assert started(measure(scenario, 9 * GUESS)) == [3]
    submitted(scenario, 4, kind="small")
    scenario.send(events.ProcessStarted(4))
    measure(scenario, 8 * GUESS, j4=3)
    scenario.exit(4)
    measure(scenario, 6 * GUESS + 10, j2=GUESS, j3=GUESS)
    assert submitted(scenario, 5, 6, 7, kind="small") == [5, 6, 7], "three MiB each: such a run has succeeded"
    assert submitted(scenario, 8) == []


def after_a_large_one(free: int, settings: Any = EAGER) -> Scenario:
    """Job 1, of kind large, runs and has five times as much as is expected of an unknown job; ``free`` MiB are left."""
    scenario = made(2 * GUESS, settings)
    submitted(scenario, 1, kind="large")
    scenario.send(events.ProcessStarted(1))
    measure(scenario, free, j1=5 * GUESS)
    return scenario


def test_none_that_needs_less_overtakes_and_none_starves() -> None:
    scenario = after_a_large_one(100)
    assert submitted(scenario, 2, kind="large") == submitted(scenario, 3) == []
    measure(scenario, 2 * GUESS)
    assert submitted(scenario, 4) == [], "though there would be room for it"
    assert scenario.why(2).startswith(
        f"needs {5 * GUESS / 1024:.1f} GiB of the machine's memory; the machine has 512 MiB"
    )
    assert scenario.why(3) == "waiting behind job 2, which waits for memory of the machine"
    assert started(scenario.exit(1)) == [2], "no job runs: somebody has to"
    scenario.send(events.ProcessStarted(2))
    assert measure(scenario, -70) == [], "others have taken what was to stay free"
    assert "the machine has 0 B of its own memory" in scenario.why(3)


def test_a_job_that_comes_first_says_behind_which_one_it_waits() -> None:
    scenario = after_a_large_one(100, replace(EAGER, policy="srtf"))
    known = estimate(1, 1, iteration_us=1000)
    assert submitted(scenario, 2, kind="large", iterations=500, estimate=known) == []
    measure(scenario, 2 * GUESS)
    assert submitted(scenario, 3, iterations=20, estimate=known) == []
    assert scenario.machine.view().queue == (3, 2)
    assert scenario.why(3) == "waiting behind job 2, which waits for memory of the machine"


def test_a_job_that_has_left_the_queue_is_in_the_way_of_no_other() -> None:
    """The machine is not measured again, because its memory has not changed."""
    scenario = made(GUESS)
    assert submitted(scenario, 1, 2) == [1]
    scenario.send(events.HoldChanged(2, "root"))
    assert started(scenario.exit(1)) == []
    assert submitted(scenario, 3) == [3]


def test_a_job_that_needed_less_than_one_that_is_cancelled_starts() -> None:
    scenario = after_a_large_one(2 * GUESS)
    assert submitted(scenario, 2, 3, kind="large") == submitted(scenario, 4) == []
    scenario.send(events.HoldChanged(2, "root"))
    assert started(scenario.send(events.CancelRequested(3))) == [4]


def test_where_nobody_measures_the_machine_nothing_is_held_back() -> None:
    scenario = one_device(settings=EAGER)
    assert submitted(scenario, *range(1, 51)) == list(range(1, 51))


def test_figures_that_make_no_sense_are_refused() -> None:
    scenario = made(GUESS)
    for event in (events.HostMeasured(1, 0, {}), events.HostMeasured(1, 1, {1: -1})):
        with pytest.raises(ValueError, match="at least one processor"):
            scenario.send(event)


def test_figures_of_jobs_that_are_over_or_not_known_yet_change_nothing_else() -> None:
    scenario = made(10 * GUESS)
    submitted(scenario, 1)
    scenario.send(events.ProcessStarted(1))
    scenario.exit(1)
    measure(scenario, GUESS, j1=5, j2=GUESS)
    assert submitted(scenario, 2, 3) == [2, 3], "of which the first has been there before, after a restart"


def test_of_many_commands_the_last_are_remembered() -> None:
    host = HostUse()
    for number in range(MOST_KINDS + 1):
        host.told({number: MIB}, {number: f"kind {number}"})
        host.over(number, f"kind {number}", succeeded=True)
    assert (host.expected("kind 0"), host.expected("kind 1")) == (UNKNOWN, MIB)


# Jobs without a device


def test_newcomers_that_do_nothing_hold_nobody_back() -> None:
    scenario = made(100 * GUESS, replace(EVERY_BOUNDARY, warm_limit=2))
    assert submitted(scenario, 1, 2, 3, 4, 5) == [1, 2]
    for job in (1, 2):
        scenario.send(events.ProcessStarted(job))
    assert started(measure(scenario, 100 * GUESS, idle=(1,))) == [3], "the other one may be loading its framework"
    scenario.began(3)
    assert started(measure(scenario, 100 * GUESS, idle=(3,))) == [], "it has loaded it"
    scenario.send(events.Attached(1))
    assert started(measure(scenario, 100 * GUESS, idle=(2,))) == [], "that was late, and counts from then on"
    assert started(scenario.want(1)) == [4]
    assert started(scenario.at(30_000).last) == [5], "as before, who never comes near its device counts no more"


def test_on_a_host_device_as_many_start_at_once_as_there_are_processors() -> None:
    scenario = made(100 * GUESS, replace(EVERY_BOUNDARY, warm_limit=2), cores=5)
    assert submitted(scenario, *range(1, 9)) == [1, 2, 3, 4, 5]
    for job in range(1, 6):
        scenario.send(events.ProcessStarted(job))
    scenario.send(events.Attached(1))
    assert started(measure(scenario, 100 * GUESS, cores=5, idle=(2,))) == [6]
    scenario.send(events.Attached(3))
    assert started(measure(scenario, 100 * GUESS, cores=5, idle=(4,))) == [], "two are warming up, by what is set"


def test_a_gpu_takes_as_many_newcomers_as_is_set() -> None:
    scenario = Scenario(replace(EVERY_BOUNDARY, warm_limit=2))
    scenario.send(events.DeviceAdded(DeviceSpec("cuda0", 1000 * MIB, sharing=Sharing.TIMESLICE)))
    measure(scenario, 100 * GUESS, cores=64)
    assert submitted(scenario, 1, 2, 3) == [1, 2]


def test_with_a_window_every_newcomer_counts() -> None:
    scenario = made(100 * GUESS, replace(EVERY_BOUNDARY, warm_limit=1, warm_window_us=5_000_000), cores=8)
    assert submitted(scenario, 1, 2, estimate=estimate(1, 1)) == [1]
    scenario.send(events.ProcessStarted(1))
    assert measure(scenario, 100 * GUESS, cores=8, idle=(1,)) == []
