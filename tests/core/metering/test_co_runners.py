"""Who slows whom: what counts for which co-runner, and what is shown of it.  Times are computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import Command, StartJob
from carpool.core.machine import Machine
from carpool.core.model import MIB, Cause, DeviceSpec, Settings, Sharing, Usage
from tests.core.scenario import Scenario, estimate, several_devices

HERE = " (concurrent)"  # devices of no known model
Rows = dict[tuple[str, str], tuple[int, int]]


#: Counters count from the first iteration on.
scene = partial(several_devices, margin=0, measured_after=1)


def begin(scenario: Scenario, job: int, kind: str, **spec: Any) -> None:
    """The job computes, in a lane of its own."""
    scenario.start_and_want(job, kind=kind, estimate=estimate(10, 10), **spec)
    scenario.send(events.Sampled(job, scenario.usage(job, 0, 1)))


def works(scenario: Scenario, job: int, device_s: int, iterations: int, **more: int) -> None:
    scenario.send(events.Sampled(job, scenario.usage(job, device_s * 1000, iterations, **more)))


def rows(scenario: Scenario) -> Rows:
    paces = reversed(list(scenario.machine.paces()))
    return {(pace.kind, pace.beside): (pace.total_us // pace.iterations, pace.iterations) for pace in paces}


def knows(scenario: Scenario, *paces: tuple[str, str, int]) -> None:
    """(kind, beside, milliseconds of an iteration)"""
    for kind, beside, ms in paces:
        scenario.send(events.PaceKnown(HERE, kind, beside, ms * 1000 * 100, 100, scenario.ms * 1000))


def place(scenario: Scenario, job: int, kind: str, **spec: Any) -> StartJob | None:
    commands: list[Command] = scenario.submit(job, kind=kind, estimate=estimate(10, 10), **spec)
    return next((command for command in commands if isinstance(command, StartJob)), None)


def worst(scenario: Scenario, job: int, kind: str, **spec: Any) -> dict[str, int | None]:
    """The largest known slowdown on each device, as a job that is placed now finds it."""
    placed = place(scenario, job, kind, **spec)
    assert placed is not None and placed.decision is not None
    return {row.device: row.slowdown_ppm for row in placed.decision.rows}


# What is measured


def test_alone_and_beside_another_kind() -> None:
    """10 iterations of 20 s alone, then 10 of 50 s beside y; what overlaps both counts for nobody."""
    scenario = scene(1000)
    begin(scenario, 1, "x")
    works(scenario, 1, 200, 10)
    scenario.at(300)
    begin(scenario, 2, "y")
    works(scenario, 1, 70, 2)
    works(scenario, 1, 500, 10)
    works(scenario, 2, 90, 9)
    assert rows(scenario) == {("x", ""): (20_000_000, 10), ("x", "y"): (50_000_000, 10), ("y", "x"): (10_000_000, 9)}


def test_with_two_neighbours_or_one_of_no_kind_nothing_counts() -> None:
    for kinds in (("y", "z"), ("",)):
        scenario = scene(1000)
        begin(scenario, 1, "x")
        for job, kind in enumerate(kinds, 2):
            begin(scenario, job, kind)
        works(scenario, 1, 50, 1)
        works(scenario, 1, 500, 10)
        assert ("x", "") not in rows(scenario) and rows(scenario).keys() <= {("x", "y"), ("y", "x")}
        assert not any(iterations >= 8 for _, iterations in rows(scenario).values())


def test_jobs_of_the_same_lane_are_no_company() -> None:
    """They take turns: each of them is alone while it computes."""
    scenario = scene(1000, max_lanes=1)
    begin(scenario, 1, "x")
    scenario.start_and_want(2, kind="y", estimate=estimate(10, 10))
    works(scenario, 1, 100, 5)
    scenario.release(1, 100_000, 5)
    scenario.send(events.Sampled(2, scenario.usage(2, 5000, 1)))
    works(scenario, 2, 30, 3)
    assert rows(scenario) == {("x", ""): (20_000_000, 10), ("y", ""): (10_000_000, 3)}


def test_iterations_whose_host_part_was_cut_off_do_not_count() -> None:
    scenario = scene(1000, max_lanes=1)
    begin(scenario, 1, "x")
    works(scenario, 1, 100, 5)
    scenario.release(1, 10_000, 5, cause=Cause.EARLY)
    scenario.want(1)
    works(scenario, 1, 10, 5)
    assert rows(scenario) == {("x", ""): (20_000_000, 5)}, "the first counters of the turn only say where it began"
    works(scenario, 1, 100, 5)
    assert rows(scenario) == {("x", ""): (20_000_000, 10)}


@pytest.mark.parametrize(
    "disturb",
    [
        lambda scenario: works(scenario, 1, 900, 5, in_bytes=1 << 20),
        lambda scenario: scenario.send(events.Sampled(1, Usage(iterations=3, device_us=5))),
    ],
    ids=["memory was moved", "another process counts"],
)
def test_a_stretch_with_something_else_in_it_does_not_count(disturb: Callable[[Scenario], object]) -> None:
    scenario = scene(1000)
    begin(scenario, 1, "x")
    works(scenario, 1, 200, 10)
    disturb(scenario)
    assert rows(scenario) == {("x", ""): (20_000_000, 10)}


@pytest.mark.parametrize(
    ("measured_after", "spec", "stretches", "counted"),
    [
        (3, {"kind": "x"}, [(5000, 2)], 0),
        (3, {"kind": "x"}, [(5000, 2), (40, 2)], 2),
        (1, {"kind": "x"}, [(15, 0), (5, 1)], 1),
        (1, {"kind": ""}, [(200, 10)], 0),
        (1, {"kind": "x", "gang": 2}, [(200, 10)], 0),
    ],
    ids=[
        *("the first iterations of a process do not count", "those after them do"),
        *("time without a finished iteration is not lost", "a job of no kind"),
        "a job for several devices is another thing than the same command on one",
    ],
)
def test_what_counts_of_a_job_alone(
    measured_after: int, spec: dict[str, Any], stretches: list[tuple[int, int]], counted: int
) -> None:
    """``stretches``: seconds and iterations."""
    scenario = scene(1000, 1000, measured_after=measured_after)
    begin(scenario, 1, **spec)
    for device_s, iterations in stretches:
        works(scenario, 1, device_s, iterations)
    assert rows(scenario) == ({("x", ""): (20_000_000, counted)} if counted else {})


# What is known of a newcomer and the jobs of a device


def test_the_largest_slowdown_counts_either_way() -> None:
    for slow, other in (("y", "new"), ("new", "y")):
        scenario = scene(1000)
        begin(scenario, 1, "y")
        knows(scenario, (slow, "", 100), (slow, other, 180), (other, "", 100), (other, slow, 120))
        assert worst(scenario, 2, "new") == {"a": 1_800_000}
        assert scenario.job(2).device == "a", "it is shown, and decides nothing"


@pytest.mark.parametrize("suspended", [False, True], ids=["they share a lane", "it is suspended between turns"])
def test_jobs_that_take_turns_do_not_slow_each_other(suspended: bool) -> None:
    scenario = scene(max_lanes=None if suspended else 1)
    scenario.send(events.DeviceAdded(DeviceSpec("a", 1000 * MIB, checkpoint=suspended)))
    place(scenario, 1, "y", checkpoint=True) if suspended else begin(scenario, 1, "y")
    knows(scenario, ("y", "", 100), ("y", "new", 300))
    assert worst(scenario, 2, "new") == {"a": None}


@pytest.mark.parametrize("spec", [{}, {"model": "faster"}, {"sharing": Sharing.TIMESLICE}])
def test_what_other_devices_and_other_ways_of_sharing_have_shown_says_nothing(spec: dict[str, Any]) -> None:
    scenario = scene()
    scenario.send(events.DeviceAdded(DeviceSpec("b", 1000 * MIB, **spec)))
    begin(scenario, 1, "y")
    knows(scenario, ("y", "", 100), ("y", "new", 300))
    assert worst(scenario, 2, "new") == {"b": None if spec else 3_000_000}


@pytest.mark.parametrize("changes", [{"policy": "fair"}, {"max_lanes": 1}], ids=["fair", "max_lanes"])
def test_users_with_one_lane_each_are_company(changes: dict[str, Any]) -> None:
    """The bound is one of each user's lanes: two users' jobs compute side by side."""
    scenario = scene(1000, **changes)
    knows(scenario, ("x", "", 100), ("x", "y", 400))
    begin(scenario, 1, "y", owner=1)
    assert worst(scenario, 2, "x", owner=2) == {"a": 4_000_000}


def test_a_pair_that_meets_again_and_is_no_worse_than_alone_is_known_as_that() -> None:
    scenario = scene(1000, 500)
    begin(scenario, 1, "x", device="a")
    begin(scenario, 2, "y", device="a")
    knows(scenario, ("x", "", 100), ("x", "y", 300))
    assert worst(scenario, 3, "y") == {"a": 3_000_000, "b": None}
    for _ in range(5):
        works(scenario, 1, 30, 300)
    found = worst(scenario, 4, "y")["a"]
    assert found is not None and 1_100_000 < found < 1_103_000, "after half minutes: 1.88, 1.45, 1.26, 1.16, 1.10"


def test_the_table_goes_from_core_to_core() -> None:
    scenario = scene(1000)
    begin(scenario, 1, "x")
    works(scenario, 1, 200, 10)
    other = Machine(Settings())
    for pace in scenario.machine.paces():
        other.handle(pace, 0)
    (pace,) = scenario.machine.paces()
    assert pace == events.PaceKnown(HERE, "x", "", 200_000_000, 10, 0) and list(other.paces()) == [pace]
    other.handle(replace(pace, measured_us=5_000_000), 7)
    assert next(other.paces()).measured_us == 7, "nothing was measured in the future"
    for wrong in (replace(pace, iterations=-1), replace(pace, kind=""), replace(pace, total_us=-1)):
        with pytest.raises(ValueError, match="of at least 0"):
            other.handle(wrong, 7)
