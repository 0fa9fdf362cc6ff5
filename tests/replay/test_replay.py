"""Journals of real daemons lead the core to the same decisions again."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from carpool.core import events
from carpool.sim.replay import JournalRow, replay, replay_journal
from tests.examples import examples

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "daemon"))

from tests.daemon.daemon_harness import Daemon

MIB = 1 << 20
#: Of each of three jobs, of which the device holds one: as many moves to the host, and back.
ROUNDS = examples(20, fewer=5)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        daemon = Daemon(Path(directory) / "home", "--device", "host:64MiB", "--policy", "pack").started()
        yield daemon
        daemon.stop()


def busy(daemon: Daemon) -> list[int]:
    """Jobs that take turns, ask for memory, are moved out, wait for others, and fail."""
    first = daemon.fake("attach", "help", f"grow:p:{8 * MIB}", f"touch:p:{8 * MIB}", "rounds:60")
    jobs = [first, *(daemon.fake("attach", "help", f"grow:e:{24 * MIB}", "rounds:40") for _ in range(3))]
    jobs.append(daemon.python("raise SystemExit(3)", after=[first]))
    jobs.append(daemon.fake("attach", f"grow:p:{80 * MIB}", "exit:1"))
    return jobs


def recorded(home: Path) -> list[JournalRow]:
    with closing(sqlite3.connect(home / "journal.sqlite")) as connection:
        rows = connection.execute("SELECT seq, now_us, kind, data FROM events ORDER BY seq")
        return [JournalRow(*row) for row in rows]


def test_a_journal_replays_to_the_same_decisions(daemon: Daemon) -> None:
    for job in busy(daemon):
        daemon.wait(job)
    daemon.put("/v1/policy", {"name": "srtf", "settings": {"quantum_us": 1000}})
    for job in busy(daemon):
        daemon.wait(job)
    daemon.terminate()
    found = replay_journal(daemon.home)
    assert found.difference is None, str(found.difference)
    assert (found.lives, found.incomplete) == (1, 0)
    assert found.events > 200 and found.commands > 200, "turns were taken"


def test_a_journal_with_offloads_replays(daemon: Daemon, tmp_path: Path) -> None:
    """Three jobs of which the device holds one; in the middle an operator changes its mode and its quantum."""
    os.mkfifo(tmp_path / "gate")
    steps = ("attach", "help", f"grow:p:{40 * MIB}", f"touch:p:{40 * MIB}", f"rounds:{ROUNDS}")
    check = f"check:{40 * MIB}:90"
    held = f"listen:{tmp_path / 'gate'}"  # it does not end before the others want to begin
    jobs = [daemon.fake(*steps, held, check)]
    jobs += [daemon.fake(*steps, check) for _ in range(2)]
    daemon.until("Offloaded", jobs[0])
    (tmp_path / "gate").write_text("go on")
    daemon.put("/v1/devices/host0", {"oversubscribe": "on", "quantum_us": 2000})
    for job in jobs:
        assert daemon.wait(job)["outcome"] == "succeeded"
    daemon.terminate()
    found = replay_journal(daemon.home)
    assert found.difference is None, str(found.difference)
    assert (found.lives, found.incomplete) == (1, 0)
    rows = recorded(daemon.home)
    assert {"Offload", "Offloaded", "WatchIdle", "DeviceChanged"} <= {row.kind for row in rows}
    assert '"oversubscribe":"on"' in next(row.data for row in rows if row.kind == "DeviceChanged")
    offload = next(index for index, row in enumerate(rows) if row.kind == "Offload")
    victim = json.dumps({"job": 99})
    rows[offload] = rows[offload]._replace(data=victim)
    assert replay(rows).difference is not None, "another victim is another decision"


def test_lives_that_were_cut_short_replay_too(daemon: Daemon) -> None:
    for job in busy(daemon)[:1]:
        daemon.wait(job)
    daemon.kill()
    daemon.started()
    waiting = busy(daemon)
    daemon.until("ProcessStarted", waiting[0])
    daemon.kill()
    daemon.started()
    for job in waiting:
        daemon.wait(job)
    daemon.terminate()
    found = replay_journal(daemon.home)
    assert found.difference is None, str(found.difference)
    assert (found.lives, found.incomplete) == (3, 0)


def edited(rows: list[JournalRow], edit: Callable[[list[JournalRow]], None]) -> list[JournalRow]:
    changed = list(rows)
    edit(changed)
    return changed


def test_replay_notices_what_was_changed(daemon: Daemon) -> None:
    """A check that cannot fail is none: a decision removed, altered, or taken for another is found."""
    for job in busy(daemon):
        daemon.wait(job)
    daemon.terminate()
    rows = recorded(daemon.home)
    grant = next(index for index, row in enumerate(rows) if row.kind == "GrantTurn")
    altered = json.dumps({**json.loads(rows[grant].data), "job": 99})

    def without(index: int) -> Callable[[list[JournalRow]], None]:
        def edit(rows: list[JournalRow]) -> None:
            del rows[index]
            rows[index:] = [row._replace(seq=row.seq - 1) for row in rows[index:]]

        return edit

    def other(rows: list[JournalRow]) -> None:
        rows[grant] = rows[grant]._replace(data=altered)

    assert replay(edited(rows, without(grant))).difference is not None
    found = replay(edited(rows, other)).difference
    assert found is not None and "GrantTurn" in str(found)
    want = next(index for index, row in enumerate(rows) if row.kind == events.TurnWanted.__name__)
    assert replay(edited(rows, without(want))).difference is not None


def test_a_life_with_missing_events_is_counted_not_replayed(daemon: Daemon) -> None:
    daemon.wait(daemon.fake("attach", "rounds:5"))
    daemon.terminate()
    rows = recorded(daemon.home)
    found = replay(rows[:10] + rows[11:])
    assert (found.lives, found.incomplete, found.events) == (0, 1, 0)
