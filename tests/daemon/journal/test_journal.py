"""The journal's thread: what can never be written stops nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpool.core.model import Attempt, JobPhase, Outcome, Usage
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.daemon.journal.contents import read_jobs
from carpool.daemon.journal.records import KEPT_RUNS, expected, read_history, read_unsuspendable
from carpool.daemon.journal.writer import Journal, Write
from carpool.daemon.system.errors import JournalFull
from carpool.protocol.api import SubmitRequest
from tests.daemon.journal_file import opened

INSERT = "INSERT INTO words VALUES (?)"
NO_TEXT = "\udcff"  # of a file's name that is no UTF-8


class JournalOfWords:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("CREATE TABLE words (word TEXT PRIMARY KEY)")
        self.connection.execute("CREATE TABLE meta (key TEXT)")
        self.told: list[int] = []
        self.journal = Journal(self.connection, asyncio.get_running_loop(), acknowledge=self._tell)

    def _tell(self, job: int) -> None:
        assert str(job) in self.words(), "on the disk before"
        self.told.append(job)

    def words(self) -> list[str]:
        other = sqlite3.connect(self.path)
        found = [word for (word,) in other.execute("SELECT word FROM words ORDER BY rowid")]
        other.close()
        return found


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[JournalOfWords]:
    made = JournalOfWords(tmp_path / "journal")
    yield made
    made.journal.close()


@pytest.mark.parametrize(
    ("value", "error"),
    [(NO_TEXT, UnicodeEncodeError), (1 << 64, OverflowError), (object(), sqlite3.Error), ("there", sqlite3.Error)],
)
async def test_what_can_never_be_written_fails_alone(
    rig: JournalOfWords, value: object, error: type[Exception]
) -> None:
    await rig.journal.durable(INSERT, ("there",))
    rig.journal.owe(INSERT, [(value,)])
    rig.journal.owe(INSERT, [("owed",)])
    bad, good = rig.journal.durable(INSERT, ("whole",), (value,)), rig.journal.durable(INSERT, ("good",))
    with pytest.raises(error):
        await bad
    await good
    await rig.journal.flushed()
    assert rig.words() == ["there", "owed", "good"]


@pytest.mark.parametrize("full", [JournalFull("disk_full", "full", ""), MemoryError()], ids=["disk", "memory"])
async def test_what_there_is_no_room_for_stays_owed_in_order(
    rig: JournalOfWords, monkeypatch: pytest.MonkeyPatch, full: Exception
) -> None:
    """After a row that is dropped, too."""
    journal = rig.journal
    commit, left = journal._commit, [1]

    def once(writes: list[Write]) -> Exception | None:
        if len(writes) == 1 and writes[0].rows == [("first",)] and left.pop():
            return full
        return commit(writes)

    monkeypatch.setattr(journal, "_commit", once)
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    owed = journal._one_by_one(
        [
            Write(INSERT, [(NO_TEXT,)]),
            Write(INSERT, [("first",)]),
            Write(INSERT, [("then",)]),
            Write(INSERT, [], answer),
        ]
    )
    assert [write.rows for write in owed] == [[("first",)], [("then",)]]
    with pytest.raises(type(full)):
        await answer


async def test_the_newest_job_of_a_commit_is_acknowledged_before_its_user_hears_of_it(rig: JournalOfWords) -> None:
    """Not one that has not been recorded."""
    with pytest.raises(UnicodeEncodeError):
        await rig.journal.durable(INSERT, (NO_TEXT,), told=1)
    assert rig.told == []
    await asyncio.gather(*(rig.journal.durable(INSERT, (str(job),), told=job) for job in (1, 3, 2)))
    assert rig.told and max(rig.told) == 3
    rig.told.clear()
    await rig.journal.durable(INSERT, ("word",))
    assert rig.told == []


# What the journal gives back of a job is what was written


def job(number: int = 1, **facts: Any) -> JobRecord:
    return JobRecord(number, 1000, 1000, SubmitRequest(argv=["python"], cwd="/", env={}, gpus=2), None, number, **facts)


async def test_of_each_command_the_last_runs_are_known(path: Path) -> None:
    """Also after a restart; the estimate is what most of them got by with, its length the last one's."""
    with opened(path) as daemon:
        for number in range(1, KEPT_RUNS + 6):
            run = job(number, started_us=number, ended_us=number, outcome=Outcome.SUCCEEDED)
            run.usage = Usage(persistent_peak=number << 20, ephemeral_peak=100 - number, iterations=number)
            daemon.store.ended(run)
    with opened(path) as daemon:
        ((_, runs),) = read_history(daemon.connection).items()
    assert [run.persistent >> 20 for run in runs] == list(range(6, KEPT_RUNS + 6))
    found = expected(runs)
    assert found is not None
    assert (found.memory.persistent >> 20, found.memory.ephemeral) == (24, 93)
    assert (found.source, found.iterations) == ("history", 25)


async def test_the_figures_of_an_ended_job_survive(path: Path) -> None:
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
    run = job(device="host0")
    with opened(path) as daemon:
        await daemon.store.submitted([run])
        run.started_us = run.submitted_us + 1
        daemon.store.started(run)
        run.usage, run.switches, run.outcome, run.exit_code = usage, 7, Outcome.SUCCEEDED, 0
        run.ended_us = run.started_us + 1
        daemon.store.ended(run)
    with opened(path) as daemon:
        (found,) = read_jobs(daemon.connection)
    assert found.phase is JobPhase.ENDED
    assert (found.usage, found.switches, found.outcome) == (usage, 7, Outcome.SUCCEEDED)


async def test_a_job_that_waits_for_another_attempt_has_none_of_its_devices(path: Path) -> None:
    run = job()
    with opened(path) as daemon:
        await daemon.store.submitted([run])
        run.device, run.other_devices, run.started_us = "host0", ("host1",), 2
        daemon.store.placed(run, None)
        daemon.store.started(run)
        run.past = (Ended(Attempt("exited with code 1", "host0"), 2, 3, 1, None, 0, 0),)
        await daemon.store.failed(run)
    with opened(path) as daemon:
        (found,) = read_jobs(daemon.connection)
        run.device, run.other_devices = "host2", ("host1",)
        daemon.store.placed(run, None)
    assert (found.device, found.other_devices, found.started_us, found.attempt) == (None, (), None, 2)
    with opened(path) as daemon:
        (found,) = read_jobs(daemon.connection)
    assert (found.device, found.other_devices, found.started_us) == ("host2", ("host1",), None), "it may run by now"


def test_how_a_job_uses_its_device_outlives_the_daemon(path: Path) -> None:
    """Of its present attempt, until it has ended."""
    run = job(was_seated=True)

    async def life(*steps: str) -> bool:
        with opened(path) as daemon:
            for step in steps:
                await daemon.store.submitted([run]) if step == "submitted" else getattr(daemon.store, step)(run)
            await daemon.journal.flushed()
            (found,) = read_jobs(daemon.connection)
        return found.was_seated

    assert not asyncio.run(life("submitted"))
    assert asyncio.run(life("used"))
    assert asyncio.run(life())
    run.outcome, run.phase = Outcome.SUCCEEDED, JobPhase.ENDED
    assert not asyncio.run(life("ended"))


async def test_commands_that_a_suspend_has_ended_are_known_to_later_daemons(path: Path) -> None:
    run = job(7)
    with opened(path) as daemon:
        daemon.store.ended_by_suspend(run)
        assert daemon.store.why_not_suspended(run)
    with opened(path) as daemon:
        assert read_unsuspendable(daemon.connection) == {run.kind: 7}
