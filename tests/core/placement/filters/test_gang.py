"""Jobs for several devices in lanes: all or nothing, each device to itself, and never two that wait for each other."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import Command, EndJob, OpenLane, StartJob
from carpool.core.events import IllegalTransition
from carpool.core.model import MIB, JobSpec, Memory, Outcome
from tests.core.scenario import P, Scenario, adopted, estimate, only, several_devices


def scene(count: int, **changes: Any) -> Scenario:
    return several_devices(*[1000] * count, **{"placement": "first-fit", **changes})


def started(commands: list[Command]) -> list[tuple[int, tuple[str, ...]]]:
    return [(each.job, (each.device, *each.further)) for each in commands if isinstance(each, StartJob)]


def kept(scenario: Scenario) -> dict[str, int | None]:
    return {name: device.reservation for name, device in scenario.machine.view().devices.items() if device.reservation}


def test_it_has_all_its_devices_to_itself_and_a_seat_on_the_first() -> None:
    scenario = scene(3)
    commands = scenario.start(1, gang=2, estimate=estimate(100, 100))
    assert started(commands) == [(1, ("a", "b"))] and OpenLane(1, "a", 0, 100 * MIB) in commands
    job, view = scenario.job(1), scenario.machine.view()
    assert (job.device, job.lane, job.devices) == ("a", 1, ("a", "b"))
    assert [view.devices[name].alone for name in "abc"] == [1, 1, None]
    assert [view.devices[name].jobs for name in "abc"] == [(1,), (1,), ()]
    assert view.devices["b"].free == 1000 * MIB, "what it uses there is its driver's business"
    for number, device in ((2, "a"), (3, "b")):
        assert scenario.submit(number, device=device) == []
        assert scenario.why(number) == f"job 1 has exclusive use of {device}: it was submitted for 2 devices"
    assert scenario.ask(1, P, 50) and scenario.want(1)
    assert started(scenario.exit(1)) == [(2, ("a",)), (3, ("b",))]


def test_all_or_nothing() -> None:
    scenario = scene(2)
    scenario.start(1)
    assert scenario.submit(2, gang=2) == []
    assert (
        scenario.why(2)
        == "waiting for exclusive use of 2 devices: 1 of 2 free; waiting for exclusive use of a: job 1 there"
    )
    assert started(scenario.submit(3)) == [(3, ("b",))], "a free device is not left idle for it"
    scenario.exit(3)
    assert started(scenario.exit(1)) == [(2, ("a", "b"))]


@pytest.mark.parametrize("phase", ["starting", "running", "attached", "detached"])
def test_a_cancelled_one_keeps_them_until_it_has_ended(phase: str) -> None:
    scenario = scene(2)
    scenario.submit(1, gang=2)
    if phase != "starting":
        scenario.send(events.ProcessStarted(1))
    if phase in ("attached", "detached"):
        scenario.send(events.Attached(1))
        scenario.want(1)
    if phase == "detached":
        scenario.send(events.Detached(1))
    assert scenario.submit(2) == []
    assert started(scenario.send(events.CancelRequested(1))) == []
    ended = events.StartFailed(1, "gone") if phase == "starting" else events.ProcessExited(1, None, 15)
    assert len(started(scenario.send(ended))) == 1
    assert all(device.alone is None for device in scenario.machine.view().devices.values())


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"gang": 3}, "needs 3 devices, but there are 2"),
        ({"gang": 2, "device": "a"}, "needs 2 devices, but it may use 1"),
        ({"gang": 2, "estimate": estimate(1001, 0)}, "needs 1001 MiB on each of 2 devices, but only 0 hold so much"),
        ({"gang": 2, "checkpoint": True}, "checkpoint jobs support one device; the job needs 2"),
    ],
)
def test_what_can_never_run_is_refused(spec: dict[str, Any], text: str) -> None:
    command = only(scene(2).submit(1, **spec), EndJob)
    assert (command.outcome, command.reason.text) == (Outcome.REFUSED, text)


def one_on_each(scenario: Scenario, *jobs: int) -> None:
    """Jobs on devices a, b, c ... in this order."""
    for job, device in zip(jobs, "abcdef", strict=False):
        scenario.start(job, device=device)


def test_it_does_not_starve_among_jobs_that_come_and_go() -> None:
    """Each of three devices always has a small job; then one after another is kept for the large job."""
    scenario = scene(3, reserve_after_us=1_000_000)
    one_on_each(scenario, 1, 2, 3)
    scenario.submit(4, gang=2)
    one_on_each(scenario, 5, 6, 7)
    scenario.at(1_000)
    assert kept(scenario) == {"a": 4}, "one device is let run empty"
    assert scenario.submit(8, device="a") == []
    scenario.exit(1)
    assert kept(scenario) == {"a": 4}
    scenario.exit(5)
    assert kept(scenario) == {"a": 4, "b": 4}, "then the next one"
    scenario.exit(2)
    assert started(scenario.exit(6)) == [(4, ("a", "b"))]
    assert kept(scenario) == {}


def test_devices_that_become_idle_are_kept_before_others_take_them() -> None:
    scenario = scene(3, reserve_after_us=1_000_000)
    one_on_each(scenario, 1, 2, 3)
    scenario.submit(4, gang=3)
    scenario.start(5, device="a")
    scenario.at(1_000)
    scenario.submit(7, device="b", exclusive=True)
    assert started(scenario.exit(2)) == [], "b is kept for job 4"
    assert kept(scenario) == {"a": 4, "b": 4}
    assert "kept for it: a, b" in scenario.why(4)


def test_only_the_first_overdue_one_has_a_part_of_its_devices_kept() -> None:
    scenario = scene(4, reserve_after_us=1_000_000)
    one_on_each(scenario, 1, 2, 3, 4)
    scenario.submit_each(5, 6, gang=3)
    scenario.start(7, device="d")
    scenario.at(2_000)
    assert set(kept(scenario).values()) == {5}
    scenario.exit(1)
    assert set(kept(scenario).values()) == {5}, "not one half each"
    scenario.exit(2)
    assert started(scenario.exit(3)) == [(5, ("a", "b", "c"))]
    assert kept(scenario) == {}, "d alone would only be idle until job 5 has ended"
    assert started(scenario.start(8, device="d")) == [(8, ("d",))]
    assert started(scenario.exit(5)) == [(6, ("a", "b", "c"))]


def test_none_is_kept_for_a_job_that_is_cancelled() -> None:
    scenario = scene(2, reserve_after_us=1_000_000)
    one_on_each(scenario, 1, 2)
    scenario.submit(3, gang=2)
    scenario.start(4, device="b")
    scenario.at(1_000)
    assert kept(scenario) == {"a": 3}
    scenario.send(events.CancelRequested(3))
    assert kept(scenario) == {}


def test_what_another_large_job_leaves_is_kept_before_shorter_ones_take_it() -> None:
    """Job 4 waits too long while job 1 has a and b; under `sjf` job 5 comes before it, and would get them."""
    scenario = scene(3, policy="sjf", backfill=1, reserve_after_us=1_000_000)
    scenario.start(1, gang=2)
    scenario.start(2, device="c")
    scenario.submit(4, gang=3, duration_us=9_000_000)
    scenario.start(3, device="c")
    scenario.at(2_000)
    assert kept(scenario) == {}, "c alone would only be idle until job 1 has ended"
    scenario.submit(5, gang=2, duration_us=1_000_000)
    assert started(scenario.exit(1)) == []
    assert kept(scenario) == {"a": 4, "b": 4, "c": 4}
    scenario.exit(2)
    assert started(scenario.exit(3)) == [(4, ("a", "b", "c"))]


def test_overlapping_ones_do_not_starve_a_larger_one() -> None:
    """At every end only two of four devices are free: but nobody takes them any more before the one that needs all."""
    scenario = scene(4, reserve_after_us=1_000_000)
    scenario.start_each(1, 2, gang=2)
    scenario.submit(3, gang=4)
    scenario.submit(4, gang=2)
    assert started(scenario.exit(1)) == [(4, ("a", "b"))], "it has not waited too long"
    scenario.at(2_000)
    scenario.submit(5, gang=2)
    assert started(scenario.exit(2)) == []
    assert scenario.why(5) == "job 3, which needs 4 devices and has waited too long, comes first"
    assert started(scenario.submit(6)) == [(6, ("c",))], "a job for one fills the gap"
    scenario.exit(4)
    assert set(kept(scenario).values()) == {3}
    assert started(scenario.exit(6)) == [(3, ("a", "b", "c", "d"))]


def test_one_that_foreign_memory_keeps_from_running_keeps_nobody_else() -> None:
    scenario = scene(4, reserve_after_us=1_000_000)
    scenario.start_each(1, 2, gang=2)
    scenario.submit(3, gang=4, estimate=estimate(500, 300))
    scenario.submit(4, gang=2)
    scenario.exit(1)
    scenario.at(2_000)
    scenario.send(events.ForeignMemory("c", 600 * MIB))
    scenario.submit(5, gang=2)
    scenario.began(4)
    assert started(scenario.exit(4)) == [(5, ("a", "b"))]


def found(job: int, device: str, *further: str, attached: bool = True) -> events.Adopted:
    seat = {"lane": 3, "granted": Memory(MIB, MIB), "attached": True} if attached else {}
    return adopted(job, device, further=further, **seat)


@pytest.mark.parametrize("attached", [True, False])
def test_after_a_restart_it_has_all_its_devices(attached: bool) -> None:
    scenario = scene(3)
    scenario.send(events.RestartBegan())
    scenario.send(events.Submitted(1, JobSpec(0, gang=2)))
    scenario.send(events.Submitted(2, JobSpec(0, device=("b", "c"))))
    with pytest.raises(IllegalTransition, match="found on 'z'"):
        scenario.send(found(1, "a", "z"))
    scenario.send(found(1, "c", "b", attached=attached))
    scenario.send(events.RestartEnded())
    assert scenario.job(1).devices == ("c", "b")
    assert scenario.why(2).startswith("job 1 has ")
    assert started(scenario.exit(1)) == [(2, ("b",))]


def test_a_device_that_others_have_taken_of_is_kept_for_nobody_whom_it_cannot_hold() -> None:
    scenario = scene(2)
    one_on_each(scenario, 1, 2)
    scenario.submit(3, gang=2, estimate=estimate(960, 10))
    scenario.start(4, device="a")
    scenario.at(61_000)
    assert kept(scenario) == {"a": 3}
    scenario.send(events.ForeignMemory("b", 50 * MIB))
    assert kept(scenario) == {}, "there will not be two"
    scenario.send(events.ForeignMemory("b", 0))
    scenario.send(events.ForeignMemory("a", 50 * MIB))
    assert kept(scenario) == {}
    scenario.send(events.ForeignMemory("a", 0))
    assert set(kept(scenario).values()) == {3}
    for job in (1, 2):
        scenario.exit(job)
    assert started(scenario.exit(4)) == [(3, ("a", "b"))]
