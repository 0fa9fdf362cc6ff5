"""Memory in use that is not by grant: never counted as free, and waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core import events
from carpool.core.commands import DenyMemory, GrantMemory, OpenLane
from carpool.core.model import MIB, Memory, Oversubscribe, Usage
from tests.core.scenario import EVERY_BOUNDARY, P, Scenario, estimate, moved_out, of_kind, one_device, only


def others_hold(scenario: Scenario, mib: int) -> list[object]:
    return list(scenario.send(events.ForeignMemory("host0", mib * MIB)))


def test_it_is_not_free(scenario: Scenario) -> None:
    others_hold(scenario, 300)
    device = scenario.machine.view().devices["host0"]
    assert (device.free, device.foreign) == (700 * MIB, 300 * MIB)


def test_a_job_that_does_not_fit_beside_it_waits_and_starts_when_it_is_gone(scenario: Scenario) -> None:
    others_hold(scenario, 300)
    assert scenario.submit(1, estimate=estimate(700, 100)) == []
    assert "free 700 MiB on host0 (300 MiB in use that Carpool has not granted)" in scenario.why(1)
    assert others_hold(scenario, 250) == []
    assert others_hold(scenario, 200)[0] == OpenLane(1, "host0", 0, 100 * MIB)


def test_a_request_waits_for_it_and_is_not_refused(scenario: Scenario) -> None:
    """Only what does not fit into the empty device is."""
    scenario.start(1)
    others_hold(scenario, 900)
    assert scenario.ask(1, P, 200) == []
    assert "in use that Carpool has not granted" in scenario.why(1)
    assert GrantMemory(1, Memory(200 * MIB), P) in others_hold(scenario, 800)
    assert only(scenario.ask(1, P, 1001), DenyMemory)


def test_what_a_job_has_from_the_driver_itself_does_not_come_back_while_it_waits(scenario: Scenario) -> None:
    """It would wait for its own memory for ever."""
    scenario.start(1)
    scenario.send(events.Sampled(1, Usage(fixed=400 * MIB)))
    others_hold(scenario, 400)
    assert GrantMemory(1, Memory(500 * MIB), P) in scenario.ask(1, P, 500)
    answer = only(scenario.ask(1, P, 601), DenyMemory)
    assert "beside 400 MiB that it has from the driver itself" in answer.reason.text


def test_jobs_keep_what_they_have_and_grow_inside_it(scenario: Scenario) -> None:
    """Others took memory that was promised already: nothing of it is taken back, and nothing more is given."""
    scenario.start(1, estimate=estimate(600, 100))
    others_hold(scenario, 500)
    assert scenario.machine.view().devices["host0"].free == 0
    assert scenario.ask(1, P, 550) == [GrantMemory(1, Memory(552 * MIB), P)]
    assert not of_kind(scenario.ask(1, P, 601), GrantMemory)


def test_who_leaves_for_another_leaves_room_for_them_too() -> None:
    scenario = one_device(oversubscribe=Oversubscribe.AUTO)
    scenario.start_each(1, 2, estimate=estimate(300, 10), persistent=300)
    others_hold(scenario, 500)
    scenario.at(5000)
    scenario.start(3, estimate=estimate(200, 10))
    leaving = scenario.ask(3, P, 200)
    # More than 600 are promised and 500 are left: 200 more need that both others leave, although one holds 300.
    assert set(moved_out(leaving)) == {1, 2}


@pytest.mark.parametrize(("device", "size"), [("host7", 0), ("host0", -1)])
def test_nonsense_is_refused(scenario: Scenario, device: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"host7|negative"):
        scenario.send(events.ForeignMemory(device, size))


def test_no_device_is_kept_for_a_job_that_does_not_fit_beside_it() -> None:
    scenario = Scenario(replace(EVERY_BOUNDARY, policy="pack", placement="first-fit"))
    for job, name in ((1, "a"), (2, "b")):
        scenario.device(name, 1000)
        scenario.start(job, device=name, persistent=100)
    scenario.submit(3, estimate=estimate(960, 10))
    scenario.start(4, device="b")
    scenario.at(61_000)
    assert scenario.machine.view().devices["a"].reservation == 3
    scenario.send(events.ForeignMemory("a", 50 * MIB))
    kept = {name: device.reservation for name, device in scenario.machine.view().devices.items()}
    assert kept == {"a": None, "b": 3}
    assert scenario.submit(5, device="a") != []
    scenario.exit(2)
    scenario.exit(4)
    assert scenario.job(3).device == "b"
