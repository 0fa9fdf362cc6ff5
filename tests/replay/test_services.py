"""Events and commands of services survive the journal."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from carpool.core import events
from carpool.core.machine import Machine
from carpool.core.model import MIB, Cause, Demand, DeviceSpec, JobSpec, Service, Settings, Usage
from carpool.sim.replay import JournalRow, replay

DEMAND = Demand("bert", 200 * MIB, 40_000, 10_000, deadline_us=90_000)
LIFE: tuple[events.Event, ...] = (
    events.RestartBegan(),
    events.DeviceAdded(DeviceSpec("host0", 1000 * MIB)),
    events.WeightsFound("host0", 7, "gone", 100 * MIB, 20_000),
    events.RestartEnded(),
    events.Submitted(1, JobSpec(0)),
    events.ProcessStarted(1),
    events.Attached(1),
    events.TurnWanted(1),
    events.Submitted(2, JobSpec(0, service=Service(priority=50))),
    events.ProcessStarted(2),
    events.Attached(2),
    events.TurnWanted(2, demand=DEMAND),
    events.TurnPaused(1, Usage()),
    events.TurnReleased(2, Cause.BOUNDARY, Usage()),
    events.TurnWanted(2, demand=Demand("huge", 2000 * MIB, 1)),
)


def recorded() -> Iterator[JournalRow]:
    """As the daemon's journal has it."""
    machine, number = Machine(Settings()), 0
    for now, event in enumerate(LIFE):
        for happened in (event, *machine.handle(event, now)):
            number += 1
            yield JournalRow(number, now, type(happened).__name__, msgspec.json.encode(happened).decode())


def test_a_journal_with_services_replays_to_the_same_decisions() -> None:
    rows = list(recorded())
    found = replay(rows)
    assert found.difference is None, str(found.difference)
    assert (found.lives, found.events) == (1, len(LIFE))
    assert {"PlaceWeights", "DropWeights", "PauseTurn", "DenyTurn"} <= {row.kind for row in rows}
