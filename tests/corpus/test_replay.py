"""Journals that version 0.1.0 has recorded lead today's core to the same decisions, event for event."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from carpool.core import commands, events
from carpool.core.machine import Machine
from carpool.core.model import Settings
from carpool.daemon.journal.schema import open_journal
from carpool.sim.replay import replay_journal
from carpool.sim.whole_devices.allocator import machine_for
from tests.corpus import journals
from tests.corpus.journals import StoredJournal, StoredRow

EVENTS = {kind.__name__: kind for kind in get_args(events.Event)}
COMMANDS = {kind.__name__ for kind in get_args(commands.Command)}
TURNS = {"TurnWanted", "GrantTurn", "TurnPassed", "TurnReleased", "NameSuccessor", "RequestYield"}
MOVES = {"Offload", "Offloaded", "WatchIdle"}
SERVICES = {"PlaceWeights", "DropWeights", "PauseTurn", "TurnPaused"}
#: journal -> (lives of daemons, least number of events, kinds that it is there for)
LIVE: dict[str, tuple[int, int, set[str]]] = {
    "lanes": (
        1,
        300,
        (TURNS - {"TurnReleased"}) | {"OpenLane", "CloseLane", "MemoryRequested", "GrantMemory", "SettingsChanged"},
    ),
    "services": (1, 500, TURNS | SERVICES),
    "offloads": (1, 500, MOVES | {"DeviceChanged", "SettingsChanged"}),
    "restarts": (3, 300, SERVICES | {"Adopted", "WeightsFound", "RetryJob", "RestartEnded"}),
    "several-devices": (
        1,
        1000,
        (TURNS - {"RequestYield"})
        | {"MemoryReturned", "DenyMemory", "RetryJob", "SignalJob", "CancelRequested", "EndJob"},
    ),
    "suspension": (1, 100, MOVES | {"TurnWanted", "TurnReleased", "GrantTurn"}),
}
SIMULATED = {
    "simulated-whole-devices": (100, {"AllocateDevices", "PreemptJob", "Preempted", "Tick"}),
    "simulated-host-store": (400, MOVES | TURNS | {"DropStore"}),
    "simulated-unknown-jobs": (400, {"Sampled", "MemoryRequested", "GrantMemory", "ResizeLane"}),
    "simulated-services": (400, SERVICES | MOVES),
}
#: Kinds that no stored journal has; other tests have them.
ABSENT = {"DenyTurn", "ForeignMemory", "OffloadFailed", "PaceKnown", "RequestWithdrawn", "StartFailed", "TraitsSeen"}
#: What has come later.
LATER = {
    "DeviceDrained",
    "EngineServed",
    "HoldChanged",
    "HostMeasured",
    "JobChanged",
    "PauseChanged",
    "PinStore",
    "PolicyTimedOut",
    "RequeueRequested",
    "ServiceBusy",
    "StopEngine",
    "TimeOut",
    "UseKnown",
    "WarnJob",
    "WarnOfDeviceTime",
}


def happened(journal: StoredJournal) -> int:
    """The number of events."""
    return sum(row.kind in EVENTS for row in journal.rows)


def home_with(journal: StoredJournal, home: Path) -> Path:
    """A home directory with this journal."""
    with closing(open_journal(home / "journal.sqlite")) as connection:
        connection.executemany("INSERT INTO events VALUES (?, 0, ?, ?, NULL, 0, ?)", journal.rows)
    return home


def decisions(journal: StoredJournal, machine: Machine) -> list[tuple[str, str]]:
    """What the core makes of the events of a journal: the events, with its own commands."""
    made: list[object] = []
    for row in journal.rows:
        if row.kind in EVENTS:
            event = msgspec.json.decode(row.data, type=EVENTS[row.kind])
            made += [event, *machine.handle(event, row.now_us)]
    return [(type(value).__name__, msgspec.json.encode(value).decode()) for value in made]


def with_new_fields(row: StoredRow) -> str:
    """An event as the present version writes it: fields that have come since have their defaults."""
    if row.kind not in EVENTS:
        return row.data
    return msgspec.json.encode(msgspec.json.decode(row.data, type=EVENTS[row.kind])).decode()


@pytest.mark.parametrize("name", LIVE)
def test_a_daemons_journal(name: str, tmp_path: Path) -> None:
    """Read and replayed as `carpool simulate --from-journal --verify` does it."""
    journal = journals.read(name)
    lives, least, kinds = LIVE[name]
    found = replay_journal(home_with(journal, tmp_path))
    assert found.difference is None, str(found.difference)
    assert (found.lives, found.incomplete) == (lives, 0)
    assert found.events == happened(journal) and found.commands == len(journal.rows) - found.events
    assert found.events >= least and journals.kinds(journal.rows) >= kinds


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulators_journal(name: str) -> None:
    journal = journals.read(name)
    least, kinds = SIMULATED[name]
    assert happened(journal) >= least and journals.kinds(journal.rows) >= kinds
    machine = machine_for(msgspec.convert(journal.settings, Settings))
    recorded = [(row.kind, with_new_fields(row)) for row in journal.rows]
    for number, (before, now) in enumerate(zip(recorded, decisions(journal, machine), strict=True)):
        assert before == now, f"row {number} after {recorded[max(0, number - 3) : number]}"


@pytest.mark.parametrize("kind", ["Offload", "WatchIdle", "GrantTurn"])
def test_another_decision_is_found(kind: str, tmp_path: Path) -> None:
    """A check that cannot fail is none."""
    journal = journals.read("offloads")
    index = next(index for index, row in enumerate(journal.rows) if row.kind == kind)
    row: StoredRow = journal.rows[index]
    journal.rows[index] = row._replace(data=row.data.replace('"job":', '"job":9'))
    found = replay_journal(home_with(journal, tmp_path)).difference
    assert found is not None and found.recorded != found.replayed and kind in str(found)


def test_every_journal_is_replayed_and_together_they_have_every_kind() -> None:
    assert journals.names() == sorted([*LIVE, *SIMULATED])
    kinds = set().union(*(journals.kinds(journals.read(name).rows) for name in journals.names()))
    assert (EVENTS.keys() | COMMANDS) - kinds == ABSENT | LATER
