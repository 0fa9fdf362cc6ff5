"""Who slows whom: what counts for which company, and what placement makes of it.  Times are computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import Command, StartJob
from carpool.core.machine import Machine
from carpool.core.memory.lanes import Refusal
from carpool.core.model import MIB, Cause, DeviceSpec, Engine, Settings, Sharing, Usage
from carpool.core.placement import queue
from carpool.core.placement.candidates import PlacementChoice
from carpool.core.state.job import Job
from carpool.core.state.state import State
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate

HERE = " (concurrent)"  # devices of no known model
Rows = dict[tuple[str, str], tuple[int, int]]


def scene(*mib: int, **changes: Any) -> Scenario:
    """Devices a, b ... of so many MiB; many lanes on each; counters count from the first iteration on."""
    chosen = {"policy": "pack", "margin": 0, "measured_after": 1, **changes}
    made = Scenario(replace(EVERY_BOUNDARY, **chosen))
    for name, size in zip("abcd", mib, strict=False):
        made.device(name, size)
    return made


def begin(scenario: Scenario, job: int, kind: str, **spec: Any) -> None:
    """The job computes, in a lane of its own."""
    scenario.start(job, kind=kind, estimate=estimate(10, 10), **spec)
    scenario.want(job)
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


def where(scenario: Scenario, job: int, kind: str, **spec: Any) -> str:
    placed = place(scenario, job, kind, **spec)
    return "-" if placed is None else placed.device


def worst(scenario: Scenario, job: int, kind: str) -> dict[str, int | None]:
    """The largest known slowdown on each device, as a job that is placed now finds it."""
    placed = place(scenario, job, kind)
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
    scenario.start(2, kind="y", estimate=estimate(10, 10))
    scenario.want(2)
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


def test_the_first_iterations_of_a_process_do_not_count() -> None:
    scenario = scene(1000, measured_after=3)
    begin(scenario, 1, "x")
    works(scenario, 1, 5000, 2)
    assert rows(scenario) == {}
    works(scenario, 1, 40, 2)
    assert rows(scenario) == {("x", ""): (20_000_000, 2)}


def test_time_without_a_finished_iteration_is_not_lost() -> None:
    scenario = scene(1000)
    begin(scenario, 1, "x")
    works(scenario, 1, 15, 0)
    works(scenario, 1, 5, 1)
    assert rows(scenario) == {("x", ""): (20_000_000, 1)}


def test_jobs_of_no_kind_and_suspended_ones_are_not_followed() -> None:
    scenario = scene(1000)
    begin(scenario, 1, "")
    works(scenario, 1, 200, 10)
    assert rows(scenario) == {}


# What placement makes of it


def residents(**changes: Any) -> Scenario:
    """x on a, y on b; b is the larger one, so that magm would go there."""
    scenario = scene(500, 1000, placement="magm", **changes)
    assert where(scenario, 1, "x", device="a") == "a"
    assert where(scenario, 2, "y", device="b") == "b"
    return scenario


def test_who_is_slowed_is_kept_apart() -> None:
    for slow, why in (("y", "slows job 2 to 1.8 times its time"), ("new", "job 2 slows it to 1.8 times its time")):
        other = "new" if slow == "y" else "y"
        for strict in (0, 1):
            scenario = residents(placement_strict=strict)
            knows(scenario, (slow, "", 100), (slow, other, 180))
            placed = place(scenario, 3, "new")
            assert placed is not None and placed.device == "a" and placed.decision is not None
            row = placed.decision.rows[-1]
            assert (row.device, row.slowdown_ppm) == ("b", 1_800_000)
            assert row.reluctance is not None and (row.reluctance.code, row.reluctance.text) == ("interference", why)
            assert (row.refusal is not None) == bool(strict)
            assert where(scenario, 4, "new", device="b") == ("-" if strict else "b"), "better than waiting"


def test_what_does_not_exceed_the_limit_or_is_off_or_not_side_by_side_changes_nothing() -> None:
    for ms, settings in ((150, {}), (300, {"interference_limit_ppm": 0}), (300, {"max_lanes": 1})):
        scenario = residents(**settings)
        knows(scenario, ("y", "", 100), ("y", "new", ms))
        assert where(scenario, 3, "new") == "b"


def test_a_good_pair_is_sought_before_the_policy_decides() -> None:
    scenario = residents()
    pairs = (("x", "", 100), ("x", "new", 110), ("new", "", 50), ("new", "x", 55))
    knows(scenario, *pairs[:3])
    assert where(scenario, 3, "new") == "b", "known one way only"
    scenario = residents()
    knows(scenario, *pairs)
    assert where(scenario, 3, "new") == "a"
    assert where(scenario, 4, "new") == "b", "what was measured is pairs: of three nothing is known"


def test_other_kinds_are_not_turned_away_with_one_that_is() -> None:
    scenario = scene(500, placement_strict=1, policy="pack")
    assert where(scenario, 1, "x") == "a"
    knows(scenario, ("x", "", 100), ("x", "bad", 300))
    assert where(scenario, 2, "bad") == "-"
    assert scenario.why(2) == "slows job 1 to 3.0 times its time"
    assert where(scenario, 3, "fine") == "a"
    knows(scenario, ("x", "bad", 120))
    assert scenario.job(2).device == "a", "what becomes known opens the device"


def test_who_is_suspended_between_turns_slows_nobody() -> None:
    scenario = scene(500)
    scenario.send(events.DeviceAdded(DeviceSpec("b", 1000 * MIB, checkpoint=True)))
    assert where(scenario, 1, "x", device="a") == "a"
    assert where(scenario, 2, "y", device="b", engine=Engine.CHECKPOINT) == "b"
    knows(scenario, ("y", "", 100), ("y", "new", 300))
    assert where(scenario, 3, "new") == "b"


def test_a_figure_of_a_week_ago_counts_no_more() -> None:
    """Kinds that are kept apart meet again some day, and are measured again."""
    for days, device in ((6, "a"), (8, "b")):
        scenario = residents(placement_strict=1)
        knows(scenario, ("y", "", 100), ("y", "new", 180))
        scenario.at(days * 24 * 3600 * 1000)
        assert where(scenario, 3, "new") == device


def test_a_pair_that_meets_again_and_is_no_worse_than_alone_is_not_kept_apart_any_more() -> None:
    scenario = scene(1000, 500)
    begin(scenario, 1, "x", device="a")
    begin(scenario, 2, "y", device="a")
    knows(scenario, ("x", "", 100), ("x", "y", 300))
    assert worst(scenario, 3, "y") == {"a": 3_000_000, "b": None}
    for _ in range(5):
        works(scenario, 1, 30, 300)
    found = worst(scenario, 4, "y")["a"]
    assert found is not None and 1_100_000 < found < 1_103_000, "after half minutes: 1.88, 1.45, 1.26, 1.16, 1.10"


def test_what_other_devices_and_other_ways_of_sharing_have_shown_says_nothing() -> None:
    for spec, device in (({}, "a"), ({"model": "faster"}, "b"), ({"sharing": Sharing.TIMESLICE}, "b")):
        scenario = scene(500, placement="magm", placement_strict=1)
        scenario.send(events.DeviceAdded(DeviceSpec("b", 1000 * MIB, **spec)))
        assert where(scenario, 1, "x", device="a") == "a"
        assert where(scenario, 2, "y", device="b") == "b"
        knows(scenario, ("y", "", 100), ("y", "new", 300))
        assert where(scenario, 3, "new") == device


def test_a_job_for_several_devices_is_another_thing_than_the_same_command_on_one() -> None:
    scenario = scene(1000, 1000)
    begin(scenario, 1, "x", gang=2)
    works(scenario, 1, 200, 10)
    assert rows(scenario) == {}


def test_off_means_that_nothing_is_measured_nor_shown() -> None:
    scenario = scene(1000, interference_limit_ppm=0)
    begin(scenario, 1, "x")
    works(scenario, 1, 200, 10)
    assert rows(scenario) == {}
    knows(scenario, ("x", "", 100), ("x", "new", 300))
    placed = place(scenario, 2, "new")
    assert placed is not None and placed.decision is not None and placed.decision.rows[0].slowdown_ppm is None
    assert placed.decision.rows[0].reluctance is None


def test_it_can_be_turned_on_and_off_while_jobs_compute() -> None:
    """What lies before, or in between, does not count."""
    off = replace(EVERY_BOUNDARY, policy="pack", measured_after=1, interference_limit_ppm=0)
    scenario = scene(1000, interference_limit_ppm=0)
    begin(scenario, 1, "x")
    works(scenario, 1, 200, 1)
    scenario.at(300)
    scenario.send(events.SettingsChanged(replace(off, interference_limit_ppm=2_000_000)))
    works(scenario, 1, 300, 5)
    works(scenario, 1, 100, 5)
    scenario.send(events.SettingsChanged(off))
    works(scenario, 1, 900, 5)
    assert rows(scenario) == {("x", ""): (20_000_000, 5)}


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


@pytest.mark.parametrize("limit", [1, 999_999])
def test_limits_below_one_make_no_sense(limit: int) -> None:
    with pytest.raises(ValueError, match=f"interference_limit_ppm is {limit}; it must be at least 1000000 .*or 0"):
        Machine(Settings(interference_limit_ppm=limit))


@pytest.mark.parametrize("changes", [{"policy": "fair"}, {"max_lanes": 1}], ids=["fair", "max_lanes"])
def test_users_with_one_lane_each_are_company(changes: dict[str, Any]) -> None:
    """The bound is one of each user's lanes: two users' jobs compute side by side."""
    scenario = scene(1000, placement_strict=1, **changes)
    knows(scenario, ("x", "", 100), ("x", "y", 400), ("y", "", 100), ("y", "x", 400))
    begin(scenario, 1, "y", owner=1)
    assert where(scenario, 2, "x", owner=2) == "-"
    assert "job 1" in scenario.why(2)


def test_one_refusal_speaks_for_all_kinds_of_which_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid of many commands waits in strict placement: looking at one of them is enough."""
    scenario = scene(1000, placement_strict=1, max_jobs=1)
    begin(scenario, 1, "y")
    knows(scenario, ("slow", "", 100), ("slow", "y", 400))
    asked: list[int] = []
    real = queue.attempt

    def counted(state: State, job: Job, open_devices: set[str]) -> PlacementChoice | Refusal:
        asked.append(job.id)
        return real(state, job, open_devices)

    monkeypatch.setattr(queue, "attempt", counted)
    for number in range(2, 12):
        scenario.submit(number, kind=f"grid {number}", estimate=estimate(10, 10))
    scenario.submit(12, kind="slow", estimate=estimate(10, 10))
    asked.clear()
    scenario.send(events.DeviceLoad("a", None, "lost"))
    assert asked == [2]
