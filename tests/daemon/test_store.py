"""What the journal gives back of a job is what was written."""

from __future__ import annotations

import asyncio
from pathlib import Path

from carpool.core.model import JobPhase, Outcome, Usage
from carpool.daemon.jobs import Job
from carpool.daemon.journal import Journal
from carpool.daemon.schema import open_journal
from carpool.daemon.store import Store, read_history, read_jobs
from carpool.protocol.api import SubmitRequest


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
    job = Job(1, 1000, 1000, SubmitRequest(argv=["python"], cwd="/", env={"A": "B"}), None, 1_790_000_000_000_000)

    async def write() -> None:
        connection = open_journal(tmp_path / "journal.sqlite")
        journal = Journal(connection, asyncio.get_running_loop())
        store = Store(journal, read_history(connection))
        await store.submitted(job)
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
