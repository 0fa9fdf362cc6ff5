"""The order of devices that is kept: which of them a placement looks at, and what makes it look again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import StartJob
from carpool.core.placement import queue
from carpool.core.state import device_order
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate

DEVICES = 6


@pytest.fixture(autouse=True, scope="module")
def observed() -> None:
    """Nothing is compared here with a look at all devices: that would count, too."""


@pytest.fixture
def full() -> Scenario:
    """Each of its devices has a job that leaves no room for one of 60 MiB."""
    scenario = Scenario()
    for number in range(DEVICES):
        scenario.device(f"gpu{number}", 100)
    for job in range(1, DEVICES + 1):
        scenario.submit(job, estimate=estimate(50, 0))
        scenario.began(job)
    return scenario


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    found: list[str] = []
    on_device = queue.on_device

    def noted(state: Any, device: Any, job: Any) -> Any:
        found.append(device.spec.id)
        return on_device(state, device, job)

    monkeypatch.setattr(queue, "on_device", noted)
    monkeypatch.setattr(queue, "_may_help", lambda *_: True)  # a shorter look, which would be enough here
    yield found


def wants_all_devices(scenario: Scenario, looked_at: list[str]) -> None:
    assert scenario.submit(7, estimate=estimate(60, 0)) == []
    assert sorted(looked_at) == sorted(scenario.machine.view().devices)
    looked_at.clear()


def test_after_a_refusal_only_changed_devices_are_looked_at(full: Scenario, looked_at: list[str]) -> None:
    wants_all_devices(full, looked_at)
    assert StartJob in map(type, full.send(events.ProcessExited(3, 0)))
    assert looked_at == ["gpu2"]


def test_other_settings_are_a_reason_to_look_at_all(full: Scenario, looked_at: list[str]) -> None:
    wants_all_devices(full, looked_at)
    full.send(events.SettingsChanged(replace(EVERY_BOUNDARY, max_jobs=5)))
    assert len(set(looked_at)) == DEVICES


def test_refusals_are_forgotten_before_they_are_too_many(
    full: Scenario, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_order, "MOST_REFUSALS", 1)
    wants_all_devices(full, looked_at)
    full.submit(8, owner=5, estimate=estimate(61, 0))
    looked_at.clear()
    full.send(events.ProcessExited(3, 0))
    assert len(set(looked_at)) == DEVICES


def changed_by(scenario: Scenario, job: int) -> set[str]:
    """Devices that say that they have changed when an attribute of the job has."""
    state = scenario.machine._state
    before = set(state.device_order.changed)
    state.device_order.changed.clear()
    state.jobs[job].immovable = None
    found = set(state.device_order.changed)
    state.device_order.changed |= before
    return found


def test_a_job_that_changes_changes_its_device(full: Scenario) -> None:
    assert changed_by(full, 3) == {"gpu2"}
    full.send(events.ProcessExited(3, 0))
    assert not changed_by(full, 3)
