"""Drained devices: nothing new is placed there, and what is there goes on."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import Command, StartJob
from carpool.core.model import MIB, Allocation, DeviceSpec, Settings
from tests.core.scenario import EVERY_BOUNDARY, Scenario


def started(commands: list[Command]) -> list[tuple[int, str]]:
    return [(command.job, command.device) for command in commands if isinstance(command, StartJob)]


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario(EVERY_BOUNDARY)
    scenario.device("host0", 1000)
    return scenario


def drain(scenario: Scenario, device: str, why: str = "drained by root") -> list[Command]:
    return scenario.send(events.DeviceDrained(device, why))


def test_nothing_new_is_placed_and_what_is_there_goes_on(scenario: Scenario) -> None:
    scenario.start(1)
    assert drain(scenario, "host0", "drained by root: new fan") == []
    assert started(scenario.submit(2)) == []
    assert scenario.why(2) == "host0 is drained by root: new fan"
    scenario.want(1)
    assert scenario.job(1).holder
    assert started(scenario.exit(1)) == []
    assert started(drain(scenario, "host0", "")) == [(2, "host0")]


def test_others_are_used_instead_and_no_device_is_kept(scenario: Scenario) -> None:
    scenario.start(1)
    scenario.submit(2, exclusive=True)
    scenario.start(3)
    scenario.at(61_000)
    assert "kept for job 2" in ((scenario.submit(4) and "") or scenario.why(4))
    drain(scenario, "host0")
    assert scenario.machine.view().devices["host0"].reservation is None
    assert started(scenario.device("host1", 1000)) == [(2, "host1")]
    drain(scenario, "host0", "")
    assert scenario.why(4) == ""


def test_the_reason_is_that_of_a_device_that_may_be_used(scenario: Scenario) -> None:
    scenario.device("host1", 1000)
    drain(scenario, "host1")
    scenario.start(1, exclusive=True)
    scenario.submit(2)
    assert scenario.why(2) == "job 1 has host0 to itself"
    assert scenario.machine.placement(2) is not None


def test_several_devices_are_not_gathered_from_drained_ones(scenario: Scenario) -> None:
    scenario.device("host1", 1000)
    drain(scenario, "host1")
    assert started(scenario.submit(1, gang=2)) == []
    scenario.at(100_000)
    assert started(scenario.submit(2)) == [(2, "host0")]
    drain(scenario, "host1", "")
    (start,) = scenario.exit(2)[-1:]
    assert isinstance(start, StartJob) and start.job == 1


def test_a_device_may_come_drained() -> None:
    scenario = Scenario(EVERY_BOUNDARY)
    scenario.send(events.DeviceAdded(DeviceSpec("host0", 1000 * MIB, drained="drained by root")))
    assert started(scenario.submit(1)) == []


def test_whole_devices_are_not_drained() -> None:
    scenario = Scenario(Settings("fifo", allocation=Allocation.DEVICES))
    scenario.send(events.DeviceAdded(DeviceSpec("gpu0", 1)))
    with pytest.raises(ValueError, match="cannot be drained"):
        drain(scenario, "gpu0")
