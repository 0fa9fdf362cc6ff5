"""Ended jobs are removed on request: of their owner and of administrators, and of nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from carpool.core.model import JobId, Outcome
from carpool.daemon.config.limits import DAY_US
from carpool.daemon.hooks import retention as retention_module
from carpool.daemon.hooks.removed_directories import RemovedDirectories
from carpool.daemon.hooks.retention import Keeping, Retention
from carpool.daemon.jobs.table import EndedJob, JobTable
from carpool.daemon.journal.events import JournalRemoval
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.system.errors import JournalFull
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import Daemon, as_nobody, refusal


class Rows(JournalRemoval):
    """A journal that takes everything, or nothing while it is full."""

    def __init__(self) -> None:
        self.full = False

    async def jobs(self, numbers: Sequence[JobId]) -> None:
        if self.full:
            raise JournalFull("disk_full", "no room", "make room")


class Removal:
    """Three jobs that ended long ago, with their directories."""

    def __init__(self, root: Path) -> None:
        self.home, self.table, self.rows = Home(root), JobTable(), Rows()
        privileges = DirectPrivileges(self.home)
        self.home.jobs.mkdir(parents=True)
        for number in (1, 2, 3):
            (self.home.jobs / str(number)).mkdir()
            self.table.ended[number] = EndedJob(number, 0, Outcome.SUCCEEDED, msgspec.Raw(b"{}"), 1, 1)
        self.directories, keeping = RemovedDirectories(self.home, privileges), Keeping(DAY_US, 100, 1000)
        self.retention = Retention(self.table, self.rows, self.directories, keeping, lambda _jobs: None)

    async def clean(self, *numbers: JobId) -> list[JobId]:
        return await self.retention.remove([self.table.ended[number] for number in numbers])

    async def deleted(self) -> list[str]:
        """When nothing is being deleted any more: what is left of directories."""
        assert self.retention._deleting is not None
        await self.retention._deleting
        return sorted(path.name for path in self.home.removed.iterdir())


@pytest.fixture
def removal(tmp_path: Path) -> Removal:
    return Removal(tmp_path / "home")


async def test_on_a_full_disk_directories_go_and_make_room_for_the_rows(removal: Removal) -> None:
    removal.rows.full = True
    with pytest.raises(JournalFull):
        await removal.clean(1)
    assert await removal.deleted() == [] and 1 in removal.table.ended
    removal.rows.full = False
    assert await removal.clean(1) == [1] and 1 not in removal.table.ended


async def test_directories_that_take_their_time_hold_up_nobody(
    removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn, begun = asyncio.Event(), list[int]()

    async def delete() -> None:
        begun.append(len(begun))
        await stubborn.wait()

    monkeypatch.setattr(removal.directories, "delete", delete)
    async with asyncio.timeout(20):
        assert await removal.clean(1) == [1]
        assert await removal.clean(2) == [2]
        stubborn.set()
        await removal.deleted()
    assert begun == [0, 1], "one of them at a time, and one for all that came meanwhile"


async def test_for_no_job_nothing_is_asked(removal: Removal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "awaited", None)
    assert await removal.clean() == [] and removal.retention._deleting is None


async def test_a_retry_takes_along_the_jobs_in_whose_place_it_ran(removal: Removal) -> None:
    """Without the retry the failed job of an array would count as not tried again."""
    for number in (2, 3):
        removal.table.ended[number] = replace(removal.table.ended[number], retry_of=number - 1)
    removal.table.ended[4] = replace(removal.table.ended[3], id=4, retry_of=None)  # the newest one stays
    assert await removal.clean(3) == [3] and list(removal.table.ended) == [4]


def test_others_jobs_stay(daemon: Daemon) -> None:
    job = daemon.submit("true", ended=True)
    daemon.submit("true")
    body = {"jobs": [job]}
    assert as_nobody(daemon, f"attempt(lambda: daemon.post('/v1/clean', {body}))") == "not_owner"
    own = "daemon.wait(daemon.submit('true'))['id']"
    range_of = f"daemon.post('/v1/clean', {{'jobs': [{job}, {own}]}})['kept'][0]"
    assert as_nobody(daemon, range_of) == job, "of others' jobs in a range the answer says that they stay"
    assert daemon.show(job)["outcome"] == "succeeded"


def test_jobs_that_are_gone_do_not_keep_the_others_and_live_ones_do(daemon: Daemon) -> None:
    job = daemon.submit("true", ended=True)
    live = daemon.submit("sleep", "600")
    assert daemon.post("/v1/clean", {"jobs": [99, job]})["kept"][0] == 99
    for jobs, code in (([99], "unknown_job"), ([live, 99], "not_ended"), ([live] * 1001, "too_many_jobs")):
        assert refusal(daemon.post, "/v1/clean", {"jobs": jobs}).code == code
