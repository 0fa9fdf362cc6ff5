"""What the journal gives back of a job is what was written."""

from __future__ import annotations

import asyncio
from pathlib import Path

from carpool.core.model import Attempt, JobPhase, Outcome, Usage
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.daemon.journal.contents import read_jobs
from carpool.daemon.journal.records import KEPT_RUNS, JournalStore, expected, read_history, read_unsuspendable
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal
from carpool.protocol.api import SubmitRequest


def test_of_each_command_the_last_runs_are_known(tmp_path: Path) -> None:
    """Also after a restart; the estimate is what most of them got by with, its length the last one's."""

    async def write() -> None:
        connection = open_journal(tmp_path / "journal.sqlite")
        journal = Journal(connection, asyncio.get_running_loop())
        store = JournalStore(journal, read_history(connection))
        for number in range(1, KEPT_RUNS + 6):
            job = JobRecord(number, 1000, 1000, SubmitRequest(argv=["python"], cwd="/", env={}), None, number)
            job.usage = Usage(persistent_peak=number << 20, ephemeral_peak=100 - number, iterations=number)
            job.outcome, job.started_us, job.ended_us = Outcome.SUCCEEDED, number, number
            store.ended(job)
        await journal.flushed()
        journal.close()

    asyncio.run(write())
    connection = open_journal(tmp_path / "journal.sqlite")
    ((_, runs),) = read_history(connection).items()
    connection.close()
    assert [run.persistent >> 20 for run in runs] == list(range(6, KEPT_RUNS + 6))
    found = expected(runs)
    assert found is not None
    assert (found.memory.persistent >> 20, found.memory.ephemeral) == (24, 93)
    assert (found.source, found.iterations) == ("history", 25)


def test_the_figures_of_an_ended_job_survive(tmp_path: Path) -> None:
    usage = Usage(
        persistent_peak=1 << 30,
        ephemeral_peak=1 << 20,
        iterations=100,
        device_us=5_000_000,
        residue=4096,
        out_bytes=3 << 30,
        out_us=600_000,
        in_bytes=2 << 30,
        in_us=300_000,
    )
    job = JobRecord(1, 1000, 1000, SubmitRequest(argv=["python"], cwd="/", env={"A": "B"}), None, 1_790_000_000_000_000)

    async def write() -> None:
        connection = open_journal(tmp_path / "journal.sqlite")
        journal = Journal(connection, asyncio.get_running_loop())
        store = JournalStore(journal, read_history(connection))
        await store.submitted([job])
        job.device, job.started_us = "host0", job.submitted_us + 1
        store.started(job)
        job.usage, job.switches, job.outcome, job.exit_code = usage, 7, Outcome.SUCCEEDED, 0
        job.ended_us = job.started_us + 1
        store.ended(job)
        await journal.flushed()
        journal.close()

    asyncio.run(write())
    connection = open_journal(tmp_path / "journal.sqlite")
    (found,) = read_jobs(connection)
    connection.close()
    assert found.phase is JobPhase.ENDED
    assert (found.usage, found.switches, found.outcome) == (usage, 7, Outcome.SUCCEEDED)


def test_a_job_that_waits_for_another_attempt_has_none_of_its_devices(tmp_path: Path) -> None:
    job = JobRecord(1, 1000, 1000, SubmitRequest(argv=["python"], cwd="/", env={}, gpus=2), None, 1)

    async def write() -> None:
        connection = open_journal(tmp_path / "journal.sqlite")
        journal = Journal(connection, asyncio.get_running_loop())
        store = JournalStore(journal, read_history(connection))
        await store.submitted([job])
        job.device, job.other_devices, job.started_us = "host0", ("host1",), 2
        store.placed(job, None)
        store.started(job)
        job.past = (Ended(Attempt("exited with code 1", "host0"), 2, 3, 1, None, 0, 0),)
        await store.failed(job)
        journal.close()

    asyncio.run(write())
    connection = open_journal(tmp_path / "journal.sqlite")
    (found,) = read_jobs(connection)
    connection.close()
    assert (found.device, found.other_devices, found.started_us, found.attempt) == (None, (), None, 2)


def test_how_a_job_uses_its_device_outlives_the_daemon(tmp_path: Path) -> None:
    """Of its present attempt, until it has ended."""
    job = JobRecord(1, 1000, 1000, SubmitRequest(argv=["python"], cwd="/", env={}), None, 1, was_seated=True)

    async def life(*steps: str) -> bool:
        connection = open_journal(tmp_path / "journal.sqlite")
        journal = Journal(connection, asyncio.get_running_loop())
        store = JournalStore(journal, read_history(connection))
        for step in steps:
            await store.submitted([job]) if step == "submitted" else getattr(store, step)(job)
        await journal.flushed()
        (found,) = read_jobs(connection)
        journal.close()
        return found.was_seated

    assert not asyncio.run(life("submitted"))
    assert asyncio.run(life("used"))
    assert asyncio.run(life())
    job.outcome, job.phase = Outcome.SUCCEEDED, JobPhase.ENDED
    assert not asyncio.run(life("ended"))


def test_commands_that_a_suspend_has_ended_are_known_to_later_daemons(tmp_path: Path) -> None:
    job = JobRecord(7, 1000, 1000, SubmitRequest(argv=["python"], cwd="/", env={}), None, 1)

    async def write() -> None:
        connection = open_journal(tmp_path / "journal.sqlite")
        journal = Journal(connection, asyncio.get_running_loop())
        store = JournalStore(journal, {})
        store.ended_by_suspend(job)
        assert store.why_not_suspended(job)
        await journal.flushed()
        journal.close()

    asyncio.run(write())
    connection = open_journal(tmp_path / "journal.sqlite")
    found = read_unsuspendable(connection)
    connection.close()
    assert found == {job.kind: 7}
