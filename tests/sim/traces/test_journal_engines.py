"""Engines of a journal: their recorded times with requests are simulated, beside the jobs, not as jobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.core import commands, events
from carpool.core.model import ENGINE_LINGER_US, Cause, Memory, Usage
from carpool.daemon.journal import schema
from carpool.sim.model.served_engines import EngineRequest
from carpool.sim.traces import TraceError, read_engines, read_journal
from tests.sim.traces.test_foreign import make_journal

ENGINE = '{"argv": ["x"], "name": "llama", "service": 70, "engine": true}'
MS = 1000
Happened = Sequence[tuple[int, Any]]


def journal(home: Path, rows: Sequence[dict[str, Any]], happened: Happened = ()) -> Path:
    path = make_journal(home, rows)
    with closing(schema.open_journal(path)) as connection:
        for number, (wall_us, each) in enumerate(happened, 1):
            row = (number, wall_us, wall_us, type(each).__name__, getattr(each, "job", None), 0)
            data = msgspec.json.encode(each).decode()
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, data))
    return path


def turn(job: int, begin_us: int, end_us: int) -> Happened:
    released = events.TurnReleased(job, Cause.FORCED, Usage())
    return [(begin_us, commands.GrantTurn(1, job)), (end_us, released)]


def busy(job: int, begin_us: int, end_us: int) -> Happened:
    return [(begin_us, events.ServiceBusy(job, True)), (end_us, events.ServiceBusy(job, False))]


def engine_row(**more: Any) -> dict[str, Any]:
    return {"spec": ENGINE, "submitted_us": 100 * MS, "ended_us": 900 * MS, "persistent_bytes": 77, **more}


def test_times_with_requests_are_requests_that_compute_for_as_long_as_it_had_turns(tmp_path: Path) -> None:
    answers = sorted([*busy(1, 300 * MS, 380 * MS), *turn(1, 320 * MS, 380 * MS)], key=lambda each: each[0])
    later = busy(1, 500 * MS, 540 * MS)  # whose turn the journal no longer has
    rows = [engine_row(), {"submitted_us": 50 * MS, "device_us": 9}]
    path = journal(tmp_path, rows, [*answers, *later])
    (found,) = read_engines(path)
    assert found.requests == (
        EngineRequest(250 * MS, 60 * MS - ENGINE_LINGER_US, 0),
        EngineRequest(450 * MS, 40 * MS - ENGINE_LINGER_US, 0),
    )
    assert (found.name, found.priority, found.owner, found.cache) == ("llama", 70, 1000, 77)
    assert (found.begin_us, found.end_us, found.ttl_us) == (50 * MS, 850 * MS, None)
    jobs, notes = read_journal(path)
    assert [(job.id, job.submit_us) for job in jobs] == [("2", 0)]
    assert not any("worker" in note for note in notes)


def test_an_engine_that_still_runs_counts_and_one_that_never_ran_does_not(tmp_path: Path) -> None:
    granted = commands.GrantMemory(1, Memory(5000, 0), None)
    running = engine_row(phase="running", ended_us=None, persistent_bytes=0)
    path = journal(tmp_path, [running, engine_row(started_us=None)], [(1, granted), *busy(1, 200 * MS, 300 * MS)])
    (found,) = read_engines(path)
    assert (found.end_us, found.cache, len(found.requests)) == (0, 5000, 1)
    assert read_journal(path)[0] == [], "a journal with engines alone can be simulated"


def test_a_restart_ends_a_time_with_requests(tmp_path: Path) -> None:
    told = [
        *busy(1, 200 * MS, 250 * MS)[:1],
        (240 * MS, events.TurnWanted(1)),
        (400 * MS, events.RestartBegan()),
        *busy(1, 500 * MS, 520 * MS),
    ]
    (found,) = read_engines(journal(tmp_path, [engine_row()], told))
    assert [(each.at_us, each.prompt_us) for each in found.requests] == [(100 * MS, 39 * MS), (400 * MS, 19 * MS)]


def test_since_then(tmp_path: Path) -> None:
    """The trace begins there if an engine ran already: what it did before is left out."""
    rows = [engine_row(), engine_row(ended_us=150 * MS), {"submitted_us": 450 * MS, "device_us": 9}]
    path = journal(tmp_path, rows, [*busy(1, 300 * MS, 310 * MS), *busy(1, 600 * MS, 610 * MS)])
    (found,) = read_engines(path, since_us=400 * MS)
    assert [each.at_us for each in found.requests] == [200 * MS]
    assert (found.begin_us, found.end_us) == (0, 500 * MS)
    assert read_journal(path, since_us=400 * MS)[0][0].submit_us == 50 * MS


def test_a_journal_without_engines(tmp_path: Path) -> None:
    assert read_engines(journal(tmp_path, [{"submitted_us": 1}])) == []
    with pytest.raises(TraceError, match="there is no journal"):
        read_engines(tmp_path / "none")
