"""What happens in the core, compared with what the code should do by its own tables and by simpler code."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from carpool.core.memory.lanes import Refusal
from carpool.core.memory.preemption import PREEMPTION
from carpool.core.memory.residency import RESIDENCY
from carpool.core.model import DeviceId
from carpool.core.placement import queue
from carpool.core.placement.candidates import PlacementChoice, candidates
from carpool.core.placement.needs import allowed
from carpool.core.state.device import Lane
from carpool.core.state.job import Job
from carpool.core.state.seat_states import Table
from carpool.core.state.state import State
from carpool.core.turns.turns import TURNS


def ways(table: Table[Any]) -> set[tuple[StrEnum, StrEnum]]:
    """Which state may follow which."""
    return {(state, to) for state, row in table.rows.items() for edge in row.values() for to in edge.to}


#: Attribute -> the ways that its table has.
WAYS = {"turn": ways(TURNS), "residency": ways(RESIDENCY), "preempt": ways(PREEMPTION)}


def check(subject: Job | Lane, name: str, after: Any) -> None:
    """Raises AssertionError for a way that the table of the attribute does not have."""
    before = getattr(subject, name)
    assert (before.state, after.state) in WAYS[name], f"no table leads from {before.state} to {after.state}: {subject}"


def watch(patch: pytest.MonkeyPatch) -> None:
    """From now on every change of a job's or a lane's state is checked."""
    set_one, set_many, set_of_lane = Job.__setattr__, Job.set, Lane.__setattr__

    def one(job: Job, name: str, value: Any) -> None:
        if name in WAYS:
            check(job, name, value)
        set_one(job, name, value)

    def many(job: Job, **changes: Any) -> None:
        for name in changes.keys() & WAYS.keys():
            check(job, name, changes[name])
        set_many(job, **changes)

    def of_lane(lane: Lane, name: str, value: Any) -> None:
        if name in WAYS and name in lane.__dict__:
            check(lane, name, value)
        set_of_lane(lane, name, value)

    patch.setattr(Job, "__setattr__", one)
    patch.setattr(Job, "set", many)
    patch.setattr(Lane, "__setattr__", of_lane)


def compare_choices(patch: pytest.MonkeyPatch) -> None:
    """Have each choice of devices compared with that of a look at all of them."""
    attempt = queue.attempt

    def all_devices(state: State, job: Job, open_devices: set[DeviceId] | None) -> list[queue.Taker]:
        asked = job.requirements
        return queue._takers(state, job, queue._open(state, allowed(state, asked), asked, open_devices))

    def compared(state: State, job: Job, open_devices: set[DeviceId] | None = None) -> PlacementChoice | Refusal:
        found = attempt(state, job, open_devices)
        with pytest.MonkeyPatch.context() as all_of_them:
            all_of_them.setattr(queue, "_contenders", all_devices)
            all_of_them.setattr(queue, "_idle", candidates)
            other = attempt(state, job, open_devices)
        chosen = isinstance(found, PlacementChoice) or isinstance(other, PlacementChoice)
        assert not chosen or found == other, f"job {job.id}: {found}, and of all {other}"
        return found

    patch.setattr(queue, "attempt", compared)
