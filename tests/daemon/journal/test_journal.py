"""The journal's thread: what can never be written stops nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpool.daemon.journal.writer import Journal, Write
from carpool.daemon.system.errors import JournalFull

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
