"""Which engine a job gets whose user has left that to Carpool, and that it is remembered."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from carpool.core.model import Engine, JobPhase, Outcome
from carpool.daemon.engine import selection
from carpool.daemon.engine.preload_check import Look
from carpool.daemon.engine.selection import Engines
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import EngineChoice, JobRecord
from carpool.daemon.journal.records import JournalStore, read_history, read_ungated
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.stored_jobs import read_jobs
from carpool.daemon.journal.writer import Journal
from carpool.devices.base import DeviceBackend
from carpool.protocol.api import SubmitRequest

STATIC = "./a.out is for another kind of machine than libcarpool"
EARLIER = "job 3, an earlier run of the command, used its device outside of Carpool"


@dataclass
class StandIn:
    id: str
    checkpoint: bool


def choice(spec: SubmitRequest, earlier: str = "", **able: bool) -> tuple[str, EngineChoice]:
    devices = {name: cast("DeviceBackend", StandIn(name, each)) for name, each in able.items()}
    made = Engines(devices, lambda owner, spec: earlier)
    found, why = asyncio.run(made.choose(spec, os.geteuid(), os.getegid()))
    return found.engine, why


def request(**more: Any) -> SubmitRequest:
    return SubmitRequest(argv=["./a.out"], cwd="/", env={}, **more)


@pytest.fixture
def static(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "look", lambda command, library: Look(True, STATIC))


@pytest.mark.parametrize(
    ("more", "able", "engine", "why"),
    [
        ({}, {"host0": False, "cuda0": True}, "checkpoint", STATIC),
        ({"device": "cuda0"}, {"host0": False, "cuda0": True}, "checkpoint", STATIC),
        ({"device": "host0"}, {"host0": False, "cuda0": True}, "grant", ""),
        ({}, {"host0": False, "cuda0": False}, "grant", ""),
        ({"exclusive": True}, {"cuda0": True}, "grant", ""),
        ({"foreground": True}, {"cuda0": True}, "grant", ""),
    ],
)
def test_only_where_there_is_a_choice(
    static: None, more: dict[str, Any], able: dict[str, bool], engine: str, why: str
) -> None:
    assert choice(request(**more), **able) == (engine, EngineChoice(True, why))


@pytest.mark.parametrize("engine", ["grant", "checkpoint"])
def test_what_the_user_has_chosen_counts(static: None, engine: str) -> None:
    assert choice(request(engine=engine), EARLIER, cuda0=True) == (engine, EngineChoice())


def test_an_earlier_run_speaks_first(static: None) -> None:
    assert choice(request(), EARLIER, cuda0=True) == ("checkpoint", EngineChoice(True, EARLIER))


def test_real_files() -> None:
    spec = SubmitRequest(argv=["sh"], cwd="/", env={"PATH": "/bin"})
    assert choice(spec, cuda0=True) == ("grant", EngineChoice(True))
    engine, why = choice(request(), cuda0=True)
    assert engine == "grant" and "there is no such program" in why.why


def test_a_file_system_that_does_not_answer_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(command: object, library: object) -> Look:
        over.wait()
        return Look(True, STATIC)

    monkeypatch.setattr(selection, "look", hang)
    monkeypatch.setattr(selection, "PATIENCE_S", 0.01)
    monkeypatch.setattr(selection, "MOST_LOOKS", 1)

    async def both() -> None:
        made = Engines({"cuda0": cast("DeviceBackend", StandIn("cuda0", True))}, lambda owner, spec: "")
        for _ in range(2):  # the second one does not even look
            found, why = await made.choose(request(), os.geteuid(), os.getegid())
            assert found.engine == "grant" and "does not answer" in why.why
        over.set()

    asyncio.run(both())


def test_what_one_user_waits_for_is_nothing_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "look", lambda command, library: Look(True, STATIC))
    monkeypatch.setattr(selection, "become_reader", lambda *_: None)
    made = Engines({"cuda0": cast("DeviceBackend", StandIn("cuda0", True))}, lambda owner, spec: "")
    made._looks[1000] = selection.MOST_LOOKS
    assert "does not answer" in asyncio.run(made.choose(request(), 1000, 1000))[1].why
    assert asyncio.run(made.choose(request(), 1001, 1001))[1].why == STATIC
    assert dict(made._looks) == {1000: selection.MOST_LOOKS}


def test_where_no_thread_can_start_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(selection, "in_background", full)
    made = Engines({"cuda0": cast("DeviceBackend", StandIn("cuda0", True))}, lambda owner, spec: "")
    found, why = asyncio.run(made.choose(request(), os.geteuid(), os.getegid()))
    assert found.engine == "grant" and "new thread" in why.why
    assert not made._looks


def ended(number: int, **facts: Any) -> JobRecord:
    job = JobRecord(number, 1000, 1000, request(engine="grant"), None, 1, EngineChoice(True, "because"), ended_us=2)
    job.outcome = Outcome.SUCCEEDED
    for name, value in facts.items():
        setattr(job, name, value)
    return job


def test_what_ran_beside_carpool_is_remembered_until_it_does_not(tmp_path: Path) -> None:
    lives: list[tuple[dict[str, Any], bool]] = [
        ({"ran_ungated": True, "outcome": Outcome.CANCELLED}, False),
        ({"ran_ungated": True, "was_seated": True}, False),
        ({"ran_ungated": True}, True),
        ({}, True),
        ({"was_seated": True}, False),
    ]

    async def life(number: int, facts: dict[str, Any]) -> str:
        connection = open_journal(tmp_path / "journal.sqlite")
        journal = Journal(connection, asyncio.get_running_loop())
        store = JournalStore(journal, read_history(connection), read_ungated(connection))
        job = ended(number, **facts)
        await store.submitted([job])
        store.ended(job)
        await journal.flushed()
        journal.close()
        return store.ran_ungated(1000, job.spec)

    for number, (facts, remembered) in enumerate(lives, 1):
        why = asyncio.run(life(number, facts))
        connection = open_journal(tmp_path / "journal.sqlite")
        assert (bool(why), len(read_ungated(connection))) == (remembered, int(remembered)), facts
        jobs = list(read_jobs(connection))
        connection.close()
        assert jobs[-1].choice == EngineChoice(True, "because")
    assert job_info(jobs[-1], None).engine_why == "because"


def test_how_a_job_uses_its_device_outlives_the_daemon(tmp_path: Path) -> None:
    """Of its present attempt, until it has ended."""

    async def life(*steps: tuple[dict[str, Any], str]) -> tuple[bool, bool]:
        connection = open_journal(tmp_path / "journal.sqlite")
        journal = Journal(connection, asyncio.get_running_loop())
        store = JournalStore(journal, read_history(connection), read_ungated(connection))
        for facts, step in steps:
            job = JobRecord(1, 1000, 1000, request(), None, 1, **facts)
            await store.submitted([job]) if step == "submitted" else getattr(store, step)(job)
        await journal.flushed()
        (found,) = read_jobs(connection)
        journal.close()
        return found.was_seated, found.ran_ungated

    assert asyncio.run(life(({}, "submitted"), ({"was_seated": True}, "used"))) == (True, False)
    assert asyncio.run(life(({"ran_ungated": True}, "used"))) == (False, True)
    over = {"ran_ungated": True, "outcome": Outcome.SUCCEEDED, "phase": JobPhase.ENDED}
    assert asyncio.run(life((over, "ended"))) == (False, False)


def test_journals_of_earlier_versions_know_one_engine() -> None:
    job = JobRecord(1, 1000, 1000, request(), None, 1)
    assert job.spec.engine == "auto" and job.engine is Engine.GRANT and not job.by_checkpoint
    assert job.core_spec((), 0).engine is Engine.GRANT and job_info(job, None).engine == "grant"
