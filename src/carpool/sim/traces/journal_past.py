"""What really happened, as a journal has it: the daemon's settings and devices, and how long each job took.

The settings and devices are those of the events: of several in the time of the jobs, those that lasted longest.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from carpool.core import events
from carpool.core.model import DeviceId, DeviceSpec, Micros, Settings
from carpool.sim.model.trace_job import WHOLE_PPM
from carpool.sim.traces.files import TraceError
from carpool.sim.traces.journal import damaged, open_journal

#: Jobs that had been submitted so long before and ended later are simulated, too: devices were not idle at first.
BEFORE_US = 7 * 86_400_000_000
_BEGIN = "SELECT min(submitted_us) FROM jobs WHERE ended_us >= ? AND submitted_us >= ?"
_JOBS = """SELECT id, spec, phase, outcome, submitted_us, started_us, ended_us,
    EXISTS (SELECT 1 FROM attempts WHERE job = jobs.id AND last = 0) AS again,
    EXISTS (SELECT 1 FROM events WHERE job = jobs.id AND kind IN ('HoldChanged', 'PauseChanged')) AS stopped
  FROM jobs WHERE submitted_us >= ? ORDER BY id"""
_KINDS = {
    kind.__name__: kind
    for kind in (
        *(events.SettingsChanged, events.DeviceAdded, events.DeviceChanged, events.DeviceDrained),
        *(events.RestartBegan, events.RestartEnded),
    )
}
_EVENTS = f"""SELECT wall_us, kind, data FROM events
  WHERE kind IN ({", ".join(repr(kind) for kind in _KINDS)}) AND wall_us <= ? ORDER BY seq"""
_NO_SETTINGS = "its events no longer say what the daemon ran with; choose a later --since"


@dataclass(frozen=True, slots=True)
class SetUp:
    """What a daemon ran with."""

    settings: Settings
    devices: tuple[DeviceSpec, ...]


@dataclass(frozen=True, slots=True)
class RecordedPast:
    """``begin_us``: from when on jobs are simulated, the wall clock; ``real_us``: completion times of jobs, by id.

    ``share_ppm``: of the time of the jobs, in which the daemon ran with ``set_up``; ``left_out``: jobs, by reason.
    """

    set_up: SetUp
    share_ppm: int
    begin_us: Micros
    real_us: Mapping[str, Micros]
    left_out: Mapping[str, int]


def read_past(path: Path, since_us: Micros) -> RecordedPast:
    """Read what has become of jobs that were submitted since a time of the wall clock.  Raises TraceError."""
    with closing(open_journal(path)) as connection:
        try:
            return _read(path, connection, since_us)
        except sqlite3.Error as error:
            raise damaged(path, error) from None


def _read(path: Path, connection: sqlite3.Connection, since_us: Micros) -> RecordedPast:
    rows = connection.execute(_JOBS, (since_us,)).fetchall()
    reasons = {row["id"]: _left_out(row) for row in rows}
    real = {str(row["id"]): row["ended_us"] - row["submitted_us"] for row in rows if not reasons[row["id"]]}
    until = max((row["ended_us"] or 0 for row in rows), default=since_us)
    (begin,) = connection.execute(_BEGIN, (since_us, since_us - BEFORE_US)).fetchone()
    set_up, share = _longest(_lasted(connection.execute(_EVENTS, (until,)), since_us, until))
    if set_up is None:
        raise TraceError.at(path, "", _NO_SETTINGS)
    left_out = Counter(reason for reason in reasons.values() if reason)
    return RecordedPast(set_up, share, since_us if begin is None else begin, real, left_out)


def _left_out(row: sqlite3.Row) -> str:
    """Return why a job's time is not compared; empty if it is."""
    spec: dict[str, Any] = json.loads(row["spec"])
    ended = row["phase"] == "ended" and row["ended_us"] is not None
    reasons = {
        "served models or an engine": spec.get("engine") or spec.get("service") is not None,
        "had not ended": not ended,
        "never ran": row["started_us"] is None,
        "were cancelled or lost": row["outcome"] in ("cancelled", "lost"),
        "ran more than once": row["again"],
        "were held or paused": spec.get("hold") or row["stopped"],
        "waited for other jobs or for a time": spec.get("begin_us") or any(map(spec.get, _AFTER)),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


_AFTER = ("after", "after_any", "after_notok")


@dataclass(slots=True)
class _Daemon:
    """The present state while events are read in order; a daemon that starts tells its set-up bit by bit."""

    settings: Settings | None = None
    devices: dict[DeviceId, DeviceSpec] = field(default_factory=dict)
    starts: bool = False

    def happened(self, event: object) -> None:
        match event:
            case events.RestartBegan():
                self.starts, self.devices = True, {}
            case events.RestartEnded():
                self.starts = False
            case events.SettingsChanged(settings):
                self.settings = settings
            case events.DeviceAdded(device):
                self.devices[device.id] = device
            case events.DeviceChanged(device, quantum, mode, reserve):
                self._change(device, quantum_us=quantum, oversubscribe=mode, reserve=reserve)
            case events.DeviceDrained(device, why):
                self._change(device, drained=why)

    def _change(self, device: DeviceId, **changes: Any) -> None:
        if device in self.devices:
            self.devices[device] = replace(self.devices[device], **changes)

    @property
    def set_up(self) -> SetUp | None:
        """What the daemon runs with now; devices that are drained take no jobs."""
        used = tuple(device for device in self.devices.values() if not device.drained)
        return None if self.starts or self.settings is None or not used else SetUp(self.settings, used)


def _lasted(rows: Iterable[sqlite3.Row], since_us: Micros, until_us: Micros) -> Iterator[tuple[SetUp, Micros]]:
    """Yield each set-up and how long it lasted within the time; a set-up lasts until the next one is complete."""
    daemon, present, begun = _Daemon(), None, since_us
    for row in rows:
        daemon.happened(msgspec.convert(json.loads(row["data"]), _KINDS[row["kind"]]))
        if daemon.set_up is not None and daemon.set_up != present:
            if present is not None:
                yield present, max(0, row["wall_us"] - begun)
            present, begun = daemon.set_up, max(begun, row["wall_us"])
    if present is not None:
        yield present, max(0, until_us - begun)


def _longest(lasted: Iterable[tuple[SetUp, Micros]]) -> tuple[SetUp | None, int]:
    """Return the set-up that lasted longest in all, and its share of the time in millionths."""
    found: list[tuple[SetUp, Micros]] = []
    for set_up, us in lasted:  # settings have dictionaries, so they are no keys
        same = next((number for number, (other, _) in enumerate(found) if other == set_up), None)
        if same is None:
            found.append((set_up, us))
        else:
            found[same] = set_up, found[same][1] + us
    if not found:
        return None, 0
    best, longest = max(found, key=lambda each: each[1])
    return best, _share(longest, [us for _, us in found])


def _share(part_us: Micros, times_us: Sequence[Micros]) -> int:
    return part_us * WHOLE_PPM // sum(times_us) if sum(times_us) else WHOLE_PPM
