"""The event stream and the journal: what was shown is there after a crash."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from carpool.core.events import JobChanged, Submitted, Tick
from carpool.core.model import Estimate, JobPhase, JobSpec, Memory, Outcome, Reason
from carpool.daemon.api import jobs
from carpool.daemon.api.jobs import FEW, REASON_AGE_S, KeptRows
from carpool.daemon.api.visibility import Viewer
from carpool.daemon.config.limits import Visibility
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import EndedJob, JobRecord
from carpool.daemon.journal import events as event_log
from carpool.daemon.journal.events import Feed, last_seq
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.errors import JournalFull
from carpool.protocol.api import SubmitRequest


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


# Rows of jobs that have not changed are not made again; those of jobs that have, are


OWNER, OTHER = 1000, 1001
SECRET = "a word of the command"


def viewer(uid: int, sees: Visibility = Visibility.NAMES) -> Viewer:
    return Viewer(uid, sees, lambda job: OWNER)


@dataclass
class World:
    """What the rows are made of, and how often it was asked for."""

    monkeypatch: pytest.MonkeyPatch
    jobs: dict[int, JobRecord] = field(default_factory=dict)
    reason: Reason | None = None
    seq: int = 1
    now_s: float = 0.0
    explained: int = 0
    made: int = 0

    def __post_init__(self) -> None:
        self.add(1)
        self.rows = KeptRows(self._explain, lambda: self.seq, lambda: self.jobs, lambda: self.now_s)
        self.monkeypatch.setattr(jobs, "job_info", self._info)

    def add(self, number: int) -> None:
        spec = SubmitRequest(argv=["true", SECRET], cwd="/", env={})
        self.jobs[number] = JobRecord(number, OWNER, OWNER, spec, None, 1)

    def _explain(self, job: int) -> Reason | None:
        self.explained += 1
        return self.reason

    def _info(self, job: JobRecord, waits: Reason | None) -> object:
        self.made += 1
        return job_info(job, waits)

    def row(self, sight: Viewer) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.rows.row(self.jobs[1], sight))
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_job_that_has_not_changed_is_neither_explained_nor_encoded_again(world: World) -> None:
    assert world.row(viewer(OWNER)) == world.row(viewer(OWNER))
    assert (world.explained, world.made) == (1, 1)


def test_a_change_of_the_job_shows_at_once(world: World) -> None:
    before = world.row(viewer(OWNER))
    job = world.jobs[1]
    job.spec = msgspec.structs.replace(job.spec, name="another")
    after = world.row(viewer(OWNER))
    assert (before["name"], after["name"]) == ("", "another")
    job.phase = JobPhase.STARTING
    assert world.row(viewer(OWNER))["phase"] == "starting"


def test_no_field_of_a_job_is_forgotten(world: World) -> None:
    about = jobs._everything(world.jobs[1])
    assert len(about) == len(dataclasses.fields(JobRecord))


def test_another_reason_shows_with_the_next_event(world: World) -> None:
    assert world.row(viewer(OWNER))["reason"] is None
    world.reason, world.seq = Reason("order", "waits behind job 7"), 2
    assert world.row(viewer(OWNER))["reason"] == {"code": "order", "text": "waits behind job 7"}
    world.seq = 3
    world.row(viewer(OWNER))
    assert (world.explained, world.made) == (3, 2), "the same reason is no change"


def test_where_many_wait_a_reason_may_be_some_moments_old(world: World) -> None:
    for number in range(2, FEW + 2):
        world.add(number)
    world.row(viewer(OWNER))
    world.seq, world.reason = 2, Reason("order", "new")
    assert world.row(viewer(OWNER))["reason"] is None
    world.now_s += (FEW + 2) * REASON_AGE_S
    assert world.row(viewer(OWNER))["reason"] is not None


def test_each_sees_what_may_be_seen(world: World) -> None:
    """Whoever has asked before."""
    world.reason = Reason("order", "waits behind job 7")
    for _ in range(2):
        for sees in (Visibility.ALL, Visibility.NAMES, Visibility.OWN):
            assert SECRET in str(world.row(viewer(OWNER, sees)))
        assert SECRET not in str(world.row(viewer(OTHER)))
        assert SECRET in str(world.row(viewer(OTHER, Visibility.ALL)))


def test_of_ended_jobs_others_see_a_row_that_is_made_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_ENDED", 2)
    info = msgspec.Raw(msgspec.json.encode(job_info(world.jobs[1], None)))
    ended = [EndedJob(number, OWNER, Outcome.SUCCEEDED, info, 1, 2) for number in range(1, 5)]
    for job in (*ended, *ended):
        assert SECRET.encode() in world.rows.row(job, viewer(OWNER))
        assert SECRET.encode() not in world.rows.row(job, viewer(OTHER))
    assert world.rows.row(ended[-1], viewer(OTHER)) is world.rows.row(ended[-1], viewer(OTHER))
    assert len(world.rows._ended) == 2


def test_jobs_that_have_ended_are_forgotten(world: World) -> None:
    for number in range(2, 4 * FEW):
        world.add(number)
        world.rows.row(world.jobs[number], viewer(OWNER))
    for number in range(2, 4 * FEW):
        del world.jobs[number]
    world.add(5000)
    world.rows.row(world.jobs[5000], viewer(OWNER))
    assert len(world.rows._kept) <= 2
