"""Replays a recorded journal through the core: the same events must lead to the same decisions.

A journal holds the lives of one or more daemons.  Each life begins with `RestartBegan` and a fresh core.  The journal
keeps only the newest of the frequent events; a life with a missing event cannot be replayed, and is counted as such.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from carpool.core import commands, events
from carpool.core.machine import Machine
from carpool.core.model import Micros, Settings
from carpool.plugins import ensure_placement, ensure_policy
from carpool.sim.traces.journal import open_journal

EVENTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(events.Event)}
COMMANDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(commands.Command)}
_SELECT = "SELECT seq, now_us, kind, data FROM events ORDER BY seq"


class JournalRow(NamedTuple):
    """An event or a command, as the journal has it."""

    seq: int
    now_us: Micros
    kind: str
    data: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision that differed."""

    event: JournalRow
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"after {self.event.kind} {self.event.data} (number {self.event.seq}, at {self.event.now_us} us)"]
        lines += [f"  recorded: {line}" for line in self.recorded or ("nothing",)]
        lines += [f"  replayed: {line}" for line in self.replayed or ("nothing",)]
        return "\n".join(lines)


@dataclass(slots=True)
class Replay:
    """The result of a replay."""

    lives: int = 0  # of daemons, replayed from beginning to end
    incomplete: int = 0  # lives with missing events
    events: int = 0
    commands: int = 0
    difference: Difference | None = None


def replay_journal(path: Path) -> Replay:
    """Replay a journal file, or that of a daemon's home directory, up to the first difference.

    Raises TraceError if it cannot be read, ValueError if a policy of that time no longer exists.
    """
    with closing(open_journal(path)) as connection:
        try:
            return replay(map(JournalRow._make, connection.execute(_SELECT)))
        except sqlite3.Error as error:
            raise ValueError(f"{path}: the journal is damaged: {error}") from None


def replay(rows: Iterable[JournalRow]) -> Replay:
    """Replay rows, which are in the order of their numbers."""
    found = Replay()
    for life in _lives(rows):
        if not _complete(life):
            found.incomplete += 1
            continue
        found.lives += 1
        found.difference = _replay_life(life, found)
        if found.difference is not None:
            break
    return found


def _lives(rows: Iterable[JournalRow]) -> Iterator[list[JournalRow]]:
    life: list[JournalRow] = []
    for row in rows:
        if row.kind == events.RestartBegan.__name__ and life:
            yield life
            life = []
        life.append(row)
    if life:
        yield life


def _complete(life: list[JournalRow]) -> bool:
    begins = life[0].kind == events.RestartBegan.__name__
    return begins and life[-1].seq - life[0].seq == len(life) - 1


def _replay_life(life: list[JournalRow], found: Replay) -> Difference | None:
    machine = Machine(Settings())
    steps = list(_steps(life))
    for number, (row, recorded) in enumerate(steps, 1):
        replayed = _handle(machine, row)
        found.events += 1
        found.commands += len(recorded)
        # A daemon that was killed has not recorded all commands of its last event.
        same = replayed[: len(recorded)] if number == len(steps) else replayed
        if same != recorded and same != tuple(map(_as_written_now, recorded)):
            return Difference(row, recorded, replayed)
    return None


def _as_written_now(recorded: str) -> str:
    """Return a command of an earlier version in the present form: newer fields have their defaults."""
    kind, _, data = recorded.partition(" ")
    return f"{kind} {msgspec.json.encode(msgspec.json.decode(data, type=COMMANDS[kind])).decode()}"


def _steps(life: list[JournalRow]) -> Iterator[tuple[JournalRow, tuple[str, ...]]]:
    """Yield each event with the commands that followed from it."""
    event, following = life[0], list[str]()
    for row in life[1:]:
        if row.kind in COMMANDS:
            following.append(f"{row.kind} {row.data}")
        else:
            yield event, tuple(following)
            event, following = row, []
    yield event, tuple(following)


def _handle(machine: Machine, row: JournalRow) -> tuple[str, ...]:
    if row.kind not in EVENTS:
        raise ValueError(f"event {row.seq} is of a kind that this version does not know: {row.kind}")
    event = msgspec.json.decode(row.data, type=EVENTS[row.kind])
    if isinstance(event, events.SettingsChanged):
        ensure_policy(event.settings.policy)
        ensure_placement(event.settings.placement)
    try:
        made = machine.handle(event, row.now_us)
    except Exception:  # noqa: BLE001 - as the daemon's loop does; unless its core refused it too, this shows
        return ()
    return tuple(f"{type(command).__name__} {msgspec.json.encode(command).decode()}" for command in made)
