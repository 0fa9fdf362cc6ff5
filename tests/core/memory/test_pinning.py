"""Pinning ahead: when a move becomes possible, for whom, and within which budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import Command, DropStore, Offload, PinStore
from carpool.core.model import MIB, DeviceSpec, JobId, Oversubscribe, Settings
from tests.core.scenario import FREE, P, Scenario, estimate, moved_out, of_kind


def pins(commands: list[Command]) -> dict[JobId, int]:
    return {command.job: command.size for command in of_kind(commands, PinStore)}


def resident(scenario: Scenario, job: JobId, mib: int) -> list[Command]:
    return [*scenario.start(job), *scenario.ask(job, P, mib)]


def for_a_newcomer(scenario: Scenario) -> dict[JobId, int]:
    """Job 1 has 600 MiB and computes; what is pinned when a job of unknown size asks for 700."""
    scenario.want(1)
    assert pins(scenario.start(2)) == {}
    return pins(scenario.ask(2, P, 700))


def crowd(settings: Settings = FREE, *, pins: bool = True, mode: Oversubscribe = Oversubscribe.AUTO) -> Scenario:
    scenario = Scenario(settings)
    scenario.send(events.DeviceAdded(DeviceSpec("cuda0", 1000 * MIB, oversubscribe=mode, pins=pins)))
    return scenario


def has(scenario: Scenario, job: JobId) -> int:
    return scenario.job(job).granted.persistent


def test_a_job_that_is_placed_where_not_all_have_enough_lets_the_others_be_pinned() -> None:
    scenario = crowd()
    assert pins(resident(scenario, 1, 600)) == {}
    commands = scenario.start(2, estimate=estimate(700, 0))
    assert pins(commands) == {1: has(scenario, 1)}
    assert not moved_out(commands)
    assert scenario.machine._state.store_kept == has(scenario, 1)


def test_a_job_of_unknown_size_lets_the_others_be_pinned_when_it_asks() -> None:
    scenario = crowd()
    resident(scenario, 1, 600)
    assert for_a_newcomer(scenario) == {1: has(scenario, 1)}
    assert moved_out(scenario.release(1, 100))


def test_jobs_that_fit_together_are_not_pinned() -> None:
    """Jobs of one lane use its memory by turns."""
    scenario = crowd()
    commands = [*resident(scenario, 1, 300), *resident(scenario, 2, 300), *scenario.start(3, estimate=estimate(300, 0))]
    assert pins(commands) == {}
    scenario = crowd()
    scenario.start(1, estimate=estimate(100, 700), persistent=100)
    assert pins(scenario.start(2, estimate=estimate(100, 700))) == {}


def test_what_grows_later_is_pinned_when_it_grows() -> None:
    scenario = crowd()
    resident(scenario, 1, 400)
    scenario.start(2, estimate=estimate(700, 0))
    assert pins(scenario.ask(1, P, 500)) == {1: has(scenario, 1)}
    assert pins(scenario.ask(1, P, 450)) == {}


@pytest.mark.parametrize(
    ("device", "immovable"),
    [({"pins": False}, None), ({"mode": Oversubscribe.OFF}, None), ({}, "other processes have access to it")],
    ids=["a host device", "without oversubscription", "memory that never moves"],
)
def test_what_is_not_moved_is_not_pinned(device: dict[str, Any], immovable: str | None) -> None:
    scenario = crowd(**device)
    resident(scenario, 1, 600)
    scenario.send(events.TraitsSeen(1, immovable=immovable))
    assert for_a_newcomer(scenario) == {}


def test_the_budget_is_never_exceeded_and_a_move_comes_before_what_is_only_pinned() -> None:
    scenario = crowd(replace(FREE, host_store=500 * MIB))
    resident(scenario, 1, 400)
    resident(scenario, 2, 300)
    scenario.want(1)
    scenario.start(3)
    assert pins(scenario.ask(3, P, 500)) == {1: has(scenario, 1)}, "the second would be beyond the budget"
    moved = of_kind(scenario.at(5000).last, DropStore | Offload | PinStore)
    assert moved == [DropStore(1), Offload(2)]
    assert scenario.machine._state.store_kept == has(scenario, 2)
