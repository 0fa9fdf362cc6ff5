"""What a journal says of the past: set-ups of the daemon, and how long which jobs took."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.core.events import (
    DeviceAdded,
    DeviceChanged,
    DeviceDrained,
    HoldChanged,
    PauseChanged,
    RestartBegan,
    RestartEnded,
    SettingsChanged,
)
from carpool.core.model import DeviceId, DeviceSpec, Oversubscribe, Settings
from carpool.daemon.journal import schema
from carpool.sim.traces import TraceError
from carpool.sim.traces.journal_past import BEFORE_US, read_past
from tests.sim.traces.test_foreign import make_journal

S = 1_000_000
JOB = {"submitted_us": 10 * S, "started_us": 11 * S, "ended_us": 110 * S}
FAIR, SRTF = Settings(), Settings(policy="srtf")
DEVICE = DeviceSpec(DeviceId("host0"), 1 << 30)
OTHER = replace(DEVICE, id=DeviceId("host1"))


def life(at: int, settings: Settings, *devices: DeviceSpec) -> list[tuple[int, Any]]:
    """A daemon that starts: all within a second."""
    told = [RestartBegan(), SettingsChanged(settings), *map(DeviceAdded, devices), RestartEnded()]
    return [(at * S, event) for event in told]


def journal(home: Path, happened: Iterable[tuple[int, Any]], *rows: dict[str, Any], again: Iterable[int] = ()) -> Path:
    path = make_journal(home, [{**JOB, **row} for row in rows or ({},)])
    with closing(schema.open_journal(path)) as connection:
        for wall, event in happened:
            row = (wall, 0, type(event).__name__, getattr(event, "job", None), 0, msgspec.json.encode(event).decode())
            connection.execute("INSERT INTO events (wall_us, now_us, kind, job, ring, data) VALUES (?,?,?,?,?,?)", row)
        for job in again:
            connection.execute(
                "INSERT INTO attempts VALUES (?, 1, 0, NULL, 0, 0, 0, 0, 0, 0, '', 0, 0, NULL, '')", (job,)
            )
    return path


def test_the_set_up_is_that_of_the_daemon(tmp_path: Path) -> None:
    past = read_past(journal(tmp_path, life(0, SRTF, DEVICE, OTHER)), 5 * S)
    assert (past.set_up.settings, past.set_up.devices, past.share_ppm) == (SRTF, (DEVICE, OTHER), 1_000_000)
    assert (past.real_us, past.left_out, past.begin_us) == ({"1": 100 * S}, {}, 10 * S)


def test_of_several_the_longest_counts_in_all(tmp_path: Path) -> None:
    """From 10 to 110: fair for 10, srtf for 40, fair for 30, and after a restart for 20 more."""
    changes = [(20 * S, SettingsChanged(SRTF)), (60 * S, SettingsChanged(FAIR))]
    past = read_past(journal(tmp_path, [*life(0, FAIR, DEVICE), *changes, *life(90, FAIR, DEVICE)]), 10 * S)
    assert (past.set_up.settings, past.share_ppm) == (FAIR, 600_000)


def test_changes_after_the_last_end_and_before_the_time_do_not_count(tmp_path: Path) -> None:
    late = [(200 * S, SettingsChanged(FAIR))]
    past = read_past(journal(tmp_path, [*life(0, FAIR, DEVICE), *life(5, SRTF, DEVICE), *late]), 10 * S)
    assert (past.set_up.settings, past.share_ppm) == (SRTF, 1_000_000)


def test_devices_that_are_changed_and_drained(tmp_path: Path) -> None:
    changes = [
        (9 * S, DeviceChanged(DEVICE.id, 7 * S, Oversubscribe.OFF, 5)),
        (9 * S, DeviceDrained(OTHER.id, "drained by anna")),
        (9 * S, DeviceDrained(DeviceId("host7"), "of an earlier daemon")),
    ]
    past = read_past(journal(tmp_path, [*life(0, FAIR, DEVICE, OTHER), *changes]), 10 * S)
    assert past.set_up.devices == (replace(DEVICE, quantum_us=7 * S, oversubscribe=Oversubscribe.OFF, reserve=5),)


def test_jobs_are_left_out_for_a_reason(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {},
        {"spec": '{"argv": [], "engine": true}'},
        {"phase": "running", "ended_us": None},
        {"started_us": None},
        {"outcome": "cancelled"},
        {},
        {"spec": '{"argv": [], "hold": true}'},
        {},
        {},
        {"spec": '{"argv": [], "after_any": [1]}'},
        {"spec": '{"argv": [], "begin_us": 5}'},
        {"outcome": "failed"},
    ]
    changed = [(0, HoldChanged(8, "anna")), (0, PauseChanged(9, "anna"))]
    past = read_past(journal(tmp_path, [*life(0, FAIR, DEVICE), *changed], *rows, again=[6]), 10 * S)
    assert past.real_us == {"1": 100 * S, "12": 100 * S}
    assert past.left_out == {
        "served models or an engine": 1,
        "had not ended": 1,
        "never ran": 1,
        "were cancelled or lost": 1,
        "ran more than once": 1,
        "were held or paused": 3,
        "waited for other jobs or for a time": 2,
    }


def test_jobs_that_ran_at_the_beginning_are_simulated_but_not_compared(tmp_path: Path) -> None:
    later = BEFORE_US + 100 * S
    rows = [{"submitted_us": 1 * S, "ended_us": later + S}, {"submitted_us": later - S, "ended_us": later + S}]
    rows += [{"submitted_us": later, "ended_us": later + S}, {"submitted_us": later - 2 * S, "ended_us": later - 1}]
    past = read_past(journal(tmp_path, life(0, FAIR, DEVICE), *rows), later)
    assert past.begin_us == later - S, "the first has run for too long, and the last had ended before"
    assert past.real_us == {"3": S}


@pytest.mark.parametrize("happened", [[], life(0, FAIR), [(0, SettingsChanged(FAIR))]])
def test_a_journal_that_does_not_say_what_the_daemon_ran_with(tmp_path: Path, happened: list[tuple[int, Any]]) -> None:
    with pytest.raises(TraceError, match="no longer say what the daemon ran with"):
        read_past(journal(tmp_path, happened), 0)


def test_a_daemon_that_was_killed_while_it_started_is_no_set_up(tmp_path: Path) -> None:
    began = life(20, SRTF, DEVICE)[:-1]
    past = read_past(journal(tmp_path, [*life(0, FAIR, DEVICE), *began]), 10 * S)
    assert (past.set_up.settings, past.share_ppm) == (FAIR, 1_000_000)
