"""What happens to services, in milliseconds and MiB."""

from __future__ import annotations

from carpool.core import events
from carpool.core.commands import Command, DropWeights, PlaceWeights
from carpool.core.model import MIB, Demand, Service
from tests.core.scenario import Scenario, estimate

MS = 1000


def demand(
    key: str = "bert", mib: int = 200, reload_ms: int = 40, compute_ms: int = 10, by: int | None = None
) -> Demand:
    """``by``: milliseconds."""
    return Demand(key, mib * MIB, reload_ms * MS, compute_ms * MS, None if by is None else by * MS)


def worker(scenario: Scenario, job: int, owner: int = 0, mib: int = 50, **service: int) -> None:
    scenario.start(job, owner, service=Service(**service), estimate=estimate(0, mib))


def train(scenario: Scenario, job: int, owner: int = 0, persistent: int = 300) -> None:
    """It computes, or waits."""
    scenario.start_and_want(job, owner, estimate=estimate(persistent, 100), persistent=persistent)


def paused(scenario: Scenario, job: int, ms: int = 0) -> list[Command]:
    return scenario.send(events.TurnPaused(job, scenario.usage(job, ms)))


def place(key: str, job: int, mib: int = 200, owner: int = 0) -> PlaceWeights:
    return PlaceWeights("host0", owner, key, mib * MIB, job)


def fill(scenario: Scenario, *keys: str, mib: int = 200) -> None:
    for key in keys:
        scenario.want(1, demand=demand(key, mib))
        scenario.release(1)


def dropped(commands: list[Command]) -> list[str]:
    return [each.key for each in commands if isinstance(each, DropWeights)]
