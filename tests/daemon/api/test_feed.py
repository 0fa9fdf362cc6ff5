"""The event stream and the journal: what was shown is there after a crash."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from carpool.core.events import JobChanged, Submitted, Tick
from carpool.core.model import Estimate, JobSpec, Memory
from carpool.daemon.journal import events as event_log
from carpool.daemon.journal.events import Feed, last_seq
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.errors import JournalFull


class JournalAndFeed:
    def __init__(self, path: Path) -> None:
        connection = open_journal(path)
        self.reader = sqlite3.connect(path)
        self.journal = Journal(connection, asyncio.get_running_loop())
        self.feed = Feed(self.journal, path, last_seq(connection))

    def written(self) -> int:
        return last_seq(self.reader)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[JournalAndFeed]:
    made = JournalAndFeed(tmp_path / "journal.db")
    yield made
    made.feed.close()
    made.journal.close()
    made.reader.close()


async def test_what_a_listener_sees_is_in_the_journal(rig: JournalAndFeed) -> None:
    seen: list[int] = []

    async def listen() -> None:
        async for entry in rig.feed.entries(0, follow=True):
            assert rig.written() >= entry.seq
            seen.append(entry.seq)
            if len(seen) == 60:
                return

    listener = asyncio.create_task(listen())
    for batch in range(20):
        for each in range(3):
            rig.feed.record(batch * 3 + each, Tick())
        await asyncio.sleep(0)  # others come between
    await listener
    assert seen == list(range(1, 61))


async def test_a_submission_says_what_differs_from_the_defaults(rig: JournalAndFeed) -> None:
    spec = JobSpec(7, gang=2, estimate=Estimate(Memory(1, 2), "hint"))
    for number, happened in enumerate((Submitted(1, spec, waited_us=3), JobChanged(1, spec)), 1):
        rig.feed.record(number, happened)
        (entry,) = [entry async for entry in rig.feed.entries(number - 1, follow=False)]
        assert msgspec.json.decode(entry.data, type=type(happened)) == happened
        assert set(msgspec.json.decode(entry.data)["spec"]) == {"owner", "gang", "estimate"}


async def test_who_does_not_follow_sees_all_that_was_there_when_he_asked(rig: JournalAndFeed) -> None:
    for at in range(5):
        rig.feed.record(at, Tick())
    assert [entry.seq async for entry in rig.feed.entries(2, follow=False)] == [3, 4, 5]


async def backwards(rig: JournalAndFeed, before: int) -> list[int]:
    return [entry.seq async for entry in rig.feed.backwards(before)]


async def test_from_the_newest_back_to_the_first(rig: JournalAndFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "PAGE_ROWS", 3)
    rig.feed._recent = deque(maxlen=4)  # the others are read from the journal, page by page
    for at in range(12):
        rig.feed.record(at, Tick())
    assert await backwards(rig, 1 << 60) == list(range(12, 0, -1))
    assert await backwards(rig, 11) == list(range(10, 0, -1))
    assert await backwards(rig, 4) == [3, 2, 1]
    assert await backwards(rig, 1) == []


async def test_a_full_disk_hides_nothing(rig: JournalAndFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    full = JournalFull("disk_full", "full", "make room")
    monkeypatch.setattr(rig.journal, "_commit", lambda writes: full)
    rig.feed.record(0, Tick())
    assert [entry.seq async for entry in rig.feed.entries(0, follow=False)] == [1]
    with pytest.raises(JournalFull):
        await rig.feed.written()
    monkeypatch.undo()
    await rig.feed.written()
    assert rig.written() == 1
