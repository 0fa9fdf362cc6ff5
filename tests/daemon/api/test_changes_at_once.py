"""Two requests that change one job at the same time, of which one cannot be recorded."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from carpool.core.events import PauseChanged
from carpool.daemon.api import job_control
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.errors import JournalFull
from carpool.protocol.api import SubmitRequest

FULL = JournalFull("disk_full", "full", "make room")


class Store:
    """The test says when, and how, something is recorded."""

    def __init__(self) -> None:
        self.writing: list[asyncio.Future[None]] = []

    def changed(self, job: JobRecord) -> asyncio.Future[None]:
        self.writing.append(asyncio.get_running_loop().create_future())
        return self.writing[-1]

    control = changed


@pytest.fixture
def job() -> JobRecord:
    return JobRecord(7, 0, 0, SubmitRequest(["true"], "/", {}), None, 0)


@pytest.fixture
def context(job: JobRecord, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(job_control, "core_spec", lambda context, job: job.spec)
    told: list[Any] = []
    return SimpleNamespace(jobs=SimpleNamespace(live={7: job}), store=Store(), told=told, post=told.append)


async def refused(task: asyncio.Task[None]) -> None:
    with pytest.raises(JournalFull):
        await task


async def test_what_the_daemon_has_decided_meanwhile_stays(context: Any, job: JobRecord) -> None:
    pausing = asyncio.create_task(job_control._change(context, job, job_control._pause_event, paused_by=0))
    await asyncio.sleep(0)
    job.control = msgspec.structs.replace(job.control, timed_out="reached its time limit")
    context.store.writing[0].set_exception(FULL)
    await refused(pausing)
    assert (job.control.paused_by, job.control.timed_out) == (None, "reached its time limit")
    assert context.told[-1] == PauseChanged(7, None)


async def test_what_is_taken_back_is_taken_back_of_the_present_attempt(context: Any, job: JobRecord) -> None:
    spec = msgspec.structs.replace(job.spec, weight=7)
    changing = asyncio.create_task(job_control._changed_spec(context, job, spec))
    await asyncio.sleep(0)
    again = context.jobs.live[7] = JobRecord(7, 0, 0, job.spec, None, 0, changing=job.changing)
    assert again.spec.weight == 7
    context.store.writing[0].set_exception(FULL)
    await refused(changing)
    assert again.spec.weight == 100


async def test_requests_for_one_job_come_one_after_the_other(
    context: Any, job: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the second one stays, whatever becomes of the first."""
    monkeypatch.setattr(job_control, "_own_job", lambda request, what: (context, job))

    async def change(**changes: Any) -> None:
        async with job_control.own_job(SimpleNamespace(), "change it") as (_, found):  # type: ignore[arg-type]
            await job_control._changed_spec(context, found, msgspec.structs.replace(found.spec, **changes))

    first, second = asyncio.create_task(change(weight=7)), asyncio.create_task(change(name="other"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    context.store.writing[0].set_exception(FULL)
    await refused(first)
    await asyncio.sleep(0)
    context.store.writing[1].set_result(None)
    await second
    assert (job.spec.weight, job.spec.name) == (100, "other")
