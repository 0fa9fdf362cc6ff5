"""Which events go where there are too many: those of whoever has the most."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.core.events import RequestWithdrawn
from carpool.core.model import MemoryClass
from carpool.daemon.journal import events as event_log
from carpool.daemon.journal.events import Feed, JournalRemoval, excess
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system import peer
from tests.daemon.journal_file import sql

QUIET, BUSY = 1000, 1001
JOB = "INSERT INTO jobs (id, owner, gid, spec, env, submitted_us, phase) VALUES (?, ?, 0, '{}', '{}', 0, ?)"
EVENT = "INSERT INTO events (seq, wall_us, now_us, kind, job, ring, data) VALUES (?, 5, 0, ?, ?, ?, '{}')"


class Rows:
    """Events in a journal's file, by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = open_journal(path)
        self._seq = 0

    def job(self, number: int, owner: int, phase: str = "ended") -> int:
        self.connection.execute(JOB, (number, owner, phase))
        self.connection.commit()
        return number

    def events(self, job: int | None, count: int, kind: str = "HoldSet", ring: int = 0) -> list[int]:
        numbers = list(range(self._seq + 1, self._seq + count + 1))
        self.connection.executemany(EVENT, [(seq, kind, job, ring) for seq in numbers])
        self.connection.commit()
        self._seq += count
        return numbers

    def chosen(self, most: int, *, frequent: bool = False) -> list[int]:
        return [seq for (seq,) in excess(self.path, most, frequent=frequent)]


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    made = Rows(tmp_path / "journal.db")
    yield made
    made.connection.close()


def test_whoever_has_the_most_loses_the_oldest(rows: Rows) -> None:
    first = rows.events(rows.job(1, QUIET), 10)
    busy = rows.events(rows.job(2, BUSY), 100)
    rows.events(rows.job(3, BUSY), 20)
    assert rows.chosen(130) == []
    assert sorted(rows.chosen(50)) == busy[:80]
    assert len(rows.chosen(10)) == 120 and not set(first[5:]) & set(rows.chosen(10)), "equal shares in the end"


def test_what_was_submitted_and_the_last_number_stay(rows: Rows) -> None:
    job = rows.job(1, BUSY, "running")
    (submitted,) = rows.events(job, 1, "Submitted")
    more = rows.events(job, 10)
    assert rows.chosen(1) == more[:-1] and submitted not in rows.chosen(1)


def test_kinds_with_a_limit_of_their_own_count_apart(rows: Rows) -> None:
    job = rows.job(1, BUSY)
    usual, turns = rows.events(job, 5), rows.events(job, 7, "TurnWanted", ring=1)
    rows.events(None, 1, "DeviceAdded")
    assert rows.chosen(2) == usual[:4]
    assert rows.chosen(2, frequent=True) == turns[:5]


def test_events_of_no_job_and_of_removed_ones_have_shares_of_their_own(rows: Rows) -> None:
    devices, removed = rows.events(None, 10, "DeviceAdded"), rows.events(77, 10)
    quiet = rows.events(rows.job(1, QUIET), 10)
    rows.events(rows.job(2, BUSY), 100)
    assert not set(rows.chosen(40)) & {*devices, *removed, *quiet}


def test_a_person_of_many_uids_has_one_share(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "subuid").write_text(f"{BUSY}:300000:65536\n")
    monkeypatch.setattr(peer, "SUBUIDS", tmp_path / "subuid")
    quiet = rows.events(rows.job(1, QUIET), 20)
    for number in range(2, 12):
        rows.events(rows.job(number, 300_000 + number), 10)
    assert len(rows.chosen(40)) == 80 and not set(rows.chosen(40)) & set(quiet)


async def test_the_hourly_look_leaves_each_a_share(rows: Rows) -> None:
    quiet = rows.events(rows.job(1, QUIET), 10)
    rows.events(rows.job(2, BUSY), 2000)
    journal = Journal(rows.connection, asyncio.get_running_loop())
    assert await JournalRemoval(journal, rows.path).events(before=0, most=100) == 1910
    kept = sql(rows.path, "SELECT seq, job FROM events ORDER BY seq")
    journal.close()
    assert [seq for seq, job in kept if job == 1] == quiet and len(kept) == 100


async def test_frequent_events_of_one_job_leave_those_of_others(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "RING_ROWS", 200)
    monkeypatch.setattr(event_log, "PRUNE_EVERY", 50)
    rows.job(1, QUIET)
    rows.job(2, BUSY)
    journal = Journal(rows.connection, asyncio.get_running_loop())
    feed = Feed(journal, rows.path, 0)
    for at in range(20):
        feed.record(at, RequestWithdrawn(1, MemoryClass.EPHEMERAL))
    for round_ in range(20):
        for at in range(100):
            feed.record(1000 + round_ * 100 + at, RequestWithdrawn(2, MemoryClass.EPHEMERAL))
        await feed.written()
        if feed._pruning is not None:
            await feed._pruning
    feed.flush()
    await journal.flushed()
    kept = Counter(job for (job,) in sql(rows.path, "SELECT job FROM events"))
    feed.close()
    journal.close()
    assert kept[1] == 20 and kept[2] <= 200 + 100
