"""Environments hold tokens: those of ended jobs and removed models are in no file of the home."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from carpool.core.model import Outcome
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.models import Models, RegisteredModel
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal, empty_log_at_start
from carpool.protocol.api import SubmitRequest
from carpool.protocol.models import ModelRequest
from tests.daemon.daemon_harness import Make

TOKEN = b"hf_0123456789abcdef"
#: A small one, which lies in a page with others, and one that is spread over several pages.
ENVIRONMENTS = ({"TOKEN": TOKEN.decode()}, {"TOKEN": TOKEN.decode(), "MORE": f"{TOKEN.decode()} " * 2000})


def files_with_token(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and TOKEN in path.read_bytes())


def job(number: int, env: dict[str, str]) -> JobRecord:
    found = JobRecord(number, 1000, 1000, SubmitRequest(argv=["python"], cwd="/", env=env), None, number)
    found.outcome, found.started_us, found.ended_us = Outcome.FAILED, number, number
    return found


class ErasedJournal:
    """A journal whose write-ahead log is emptied with the next write."""

    def __init__(self, folder: Path, erase_after_s: float = 0.0) -> None:
        self.folder = folder
        connection = open_journal(folder / "journal.sqlite")
        self.journal = Journal(connection, asyncio.get_running_loop(), erase_after_s)
        self.store = JournalStore(self.journal, {})

    async def files(self) -> list[str]:
        """Those with the token, when everything has been written, and once more."""
        await self.journal.flushed()
        await self.journal.flushed()
        return files_with_token(self.folder)


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=["small", "large"])
async def test_the_environment_of_a_job_leaves_the_files_when_the_job_ends(tmp_path: Path, env: dict[str, str]) -> None:
    rig = ErasedJournal(tmp_path)
    jobs = [job(number, env) for number in range(1, 40)]
    await rig.store.submitted(jobs)
    assert await rig.files() == ["journal.sqlite-wal"]
    for ended in jobs[:-1]:
        rig.store.started(ended)
        rig.store.ended(ended)
    assert await rig.files() != [], "the last one has not ended"
    rig.store.ended(jobs[-1])
    assert await rig.files() == []
    rig.journal.close()
    assert files_with_token(tmp_path) == []


async def test_so_does_that_of_a_model_that_is_replaced_or_removed(tmp_path: Path) -> None:
    rig = ErasedJournal(tmp_path)
    models = Models(rig.journal)
    for name in ("replaced", "removed"):
        spec = ModelRequest(factory="shop:resnet", python="/bin/python", cwd="/", env=ENVIRONMENTS[1])
        await models.add(RegisteredModel(0, name, spec, 1), replace=False)
    empty = ModelRequest(factory="shop:resnet", python="/bin/python", cwd="/", env={})
    await models.add(RegisteredModel(0, "replaced", empty, 1), replace=True)
    assert await rig.files() != []
    await models.remove(0, "removed")
    assert await rig.files() == []
    rig.journal.close()


async def test_a_reader_delays_it(tmp_path: Path) -> None:
    rig = ErasedJournal(tmp_path)
    await rig.store.submitted([job(1, ENVIRONMENTS[0])])
    with closing(sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM jobs").fetchone()
        rig.store.ended(job(1, {}))
        assert await rig.files() == ["journal.sqlite-wal"]
    assert await rig.files() == []
    rig.journal.close()


async def test_many_ends_empty_the_log_once(tmp_path: Path) -> None:
    rig = ErasedJournal(tmp_path, erase_after_s=3600.0)
    await rig.store.submitted([job(1, ENVIRONMENTS[0])])
    rig.store.ended(job(1, {}))
    assert await rig.files() == ["journal.sqlite-wal"]
    reader = sqlite3.connect(tmp_path / "journal.sqlite")  # SQLite itself empties the log for the last connection only
    reader.execute("SELECT 1 FROM jobs").fetchone()
    rig.journal.close()
    assert files_with_token(tmp_path) == []
    reader.close()


def test_at_the_start_the_log_of_a_killed_daemon_is_emptied(tmp_path: Path) -> None:
    with closing(open_journal(tmp_path / "journal.sqlite")) as killed:
        killed.execute("INSERT INTO meta VALUES ('token', ?)", (TOKEN.decode(),))
        killed.execute("DELETE FROM meta WHERE key = 'token'")
        assert files_with_token(tmp_path) == ["journal.sqlite-wal"]
        with closing(open_journal(tmp_path / "journal.sqlite")) as connection:
            empty_log_at_start(connection)
        assert files_with_token(tmp_path) == []


def test_a_log_that_cannot_be_emptied_does_not_stop_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = open_journal(tmp_path / "journal.sqlite")
    connection.close()
    empty_log_at_start(connection)
    assert "may still be in the journal" in caplog.text


def test_a_token_of_an_ended_job_is_in_no_file_of_the_home(make_daemon: Make, home: Path) -> None:
    """After a retry, with a job that follows, and also where the daemon is killed right after the end."""
    daemon = make_daemon(limits='retry_pause = "10ms"\n').started()
    env = {"TOKEN": TOKEN.decode(), "PATH": "/usr/bin:/bin"}
    has_it = 'test "${#TOKEN}" = 19'
    fails_once = f"test -e again || {{ touch again; exit 1; }}; {has_it}"
    first = daemon.submit("sh", "-c", fails_once, env=env, cwd=str(home), retries=1)
    info = daemon.wait(first)
    assert (info["outcome"], info["attempt"]) == ("succeeded", 2)
    follower = daemon.submit("sh", "-c", has_it, env=env, after=[first])
    assert daemon.wait(follower)["outcome"] == "succeeded"
    daemon.restarted()
    assert files_with_token(home) == []
    waits = daemon.submit("sleep", "600")
    kept = daemon.submit("sh", "-c", has_it, env=env, after=[waits])
    daemon.terminate()
    # In the log, if a reader of the journal was closed after its writer: only the last connection empties it.
    assert files_with_token(home) in (["journal.sqlite"], ["journal.sqlite-wal"]), "the job that waits needs it"
    daemon.started().cancel(waits)
    daemon.wait(kept)
    daemon.stop()
    assert files_with_token(home) == []
