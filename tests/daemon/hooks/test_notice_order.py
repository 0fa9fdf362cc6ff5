"""That notices are sent once, in which order, and how many at a time; without processes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from carpool.core.events import Adopted, Event, ProcessExited
from carpool.core.model import JobPhase, Memory, Outcome
from carpool.core.state.job import NO_USAGE
from carpool.daemon.cgroups.job_groups import GroupLimits, JobGroups
from carpool.daemon.cgroups.places import Places
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.hooks import notices as sending
from carpool.daemon.hooks.base import Ending, JobHook, JobHooks, JobStart
from carpool.daemon.hooks.notices import AT_ONCE_OF_ONE_USER, LOST_TRY, TOO_MANY, Notices
from carpool.daemon.hooks.registry import HookParts, job_hooks
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.notices import Notice, NoticeTable, notices_of_job, read_notices
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.protocol.api import SubmitRequest
from carpool.protocol.notices import NotifyTarget
from carpool.protocol.paths import Home
from carpool.protocol.session import StartSpec
from tests.daemon.journal_file import sql


def running(number: int, owner: int = 1000, url: str = "http://x/secret") -> JobRecord:
    target = NotifyTarget(["start"], webhook=url)
    spec = SubmitRequest(argv=["true"], cwd="/", env={}, notify=[target])
    job = JobRecord(number, owner, owner, spec, None, 1)
    job.phase = JobPhase.RUNNING
    return job


class Scene:
    """A sender whose deliveries are those of the test."""

    def __init__(self, path: Path) -> None:
        self.path = path / "journal.sqlite"
        self.connection = open_journal(self.path)
        rows = read_notices(self.connection)
        self.journal = Journal(self.connection, asyncio.get_running_loop())
        self.told: asyncio.Queue[tuple[Notice, asyncio.Future[str]]] = asyncio.Queue()
        self.notices = Notices(NoticeTable(self.journal), rows, self._deliver)

    async def _deliver(self, notice: Notice) -> str:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.told.put_nowait((notice, done))
        return await done

    def row(self) -> str:
        return str(sql(self.path, "SELECT notice FROM notices")[0][0])

    async def begin(self) -> None:
        (work,) = self.notices.work().values()
        await work()

    def happened(self, job: JobRecord) -> None:
        if job.outcome is None:
            self.notices.started(job, None)
        else:
            self.notices.ended(job)

    async def close(self) -> None:
        self.notices.stop()
        await self.journal.flushed()
        self.journal.close()

    def states(self, job: int) -> list[tuple[str, int, str]]:
        return [(each.state, each.tries, each.text) for each in notices_of_job(self.path, job)]


async def begun(path: Path) -> Scene:
    scene = Scene(path)
    await scene.begin()
    return scene


async def test_a_target_is_told_once_and_a_failure_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        scene = await begun(tmp_path)
        scene.happened(running(1))
        scene.happened(running(1))  # said again after a restart
        (await scene.told.get())[1].set_result("no route")
        await asyncio.sleep(0)
        await scene.close()
        assert scene.states(1) == [("failed", 1, "no route")] and scene.told.empty()
    assert "job 1: notice to 'webhook:http://x' of its start was not delivered: 'no route'" in caplog.text


async def test_a_target_hears_of_one_jobs_events_one_after_the_other(tmp_path: Path) -> None:
    scene = await begun(tmp_path)
    job = running(1)
    job.spec.notify[0] = NotifyTarget(["start", "end"], webhook="http://x/secret")
    scene.happened(job)
    job.phase, job.outcome = JobPhase.ENDED, Outcome.SUCCEEDED
    scene.happened(job)
    scene.happened(running(2))
    first, second = await scene.told.get(), await scene.told.get()
    for each in (first, second):
        each[1].set_result("")
    third = await scene.told.get()
    third[1].set_result("")
    await asyncio.sleep(0)
    await scene.close()
    bodies = [each[0].body for each in (first, second, third)]
    assert [(body["job"], body["event"]) for body in bodies] == [(1, "start"), (2, "start"), (1, "end")]


async def test_what_a_daemon_did_not_begin_the_next_one_sends_and_what_it_began_nobody(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.happened(running(1))
    await scene.close()
    scene = await begun(tmp_path)
    await scene.told.get()
    await scene.close()
    scene = await begun(tmp_path)
    await scene.close()
    assert scene.told.empty()
    assert scene.states(1) == [("failed", 1, LOST_TRY)]


async def test_one_users_notices_do_not_hold_up_anothers(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for number in range(1, 30):
        scene.happened(running(number))
    scene.happened(running(30, owner=1001))
    await scene.begin()
    owners = [(await scene.told.get())[0].owner for _ in range(AT_ONCE_OF_ONE_USER + 1)]
    await scene.journal.flushed()
    assert scene.told.empty()
    await scene.close()
    assert sorted(owners) == [1000] * AT_ONCE_OF_ONE_USER + [1001]


async def test_what_is_owed_to_one_user_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of what an earlier daemon has left; a notice that has been sent makes room for another."""
    monkeypatch.setattr(sending, "MOST_OWED", 2)
    scene = Scene(tmp_path)
    for number in (1, 2, 3):
        scene.happened(running(number))
    scene.happened(running(4, owner=1001))
    await scene.begin()
    (await scene.told.get())[1].set_result("")
    await scene.told.get()
    await scene.journal.flushed()
    scene.happened(running(5))
    await scene.close()
    states = [state for number in range(1, 6) for state in scene.states(number)]
    assert states[0][0] == "sent" and states[2] == ("failed", 0, TOO_MANY)
    assert [states[place][0] for place in (1, 3, 4)] == ["owed"] * 3
    monkeypatch.setattr(sending, "MOST_OWED", 1)
    for number in (6, 7):
        scene = Scene(tmp_path)
        scene.happened(running(number, owner=1002))
        await scene.close()
    assert scene.states(6)[0][0] == "owed" and scene.states(7) == [("failed", 0, TOO_MANY)]


async def test_nobody_is_told_of_jobs_that_were_removed(tmp_path: Path) -> None:
    """Neither of those that wait, nor of those that are being told."""
    scene = await begun(tmp_path)
    for number in range(1, 6):
        scene.happened(running(number))
    tries = [(await scene.told.get())[1] for _ in range(AT_ONCE_OF_ONE_USER)]
    scene.notices.forgotten([1, 2, 3, 4])
    assert (await scene.told.get())[0].body["job"] == 5 and all(each.cancelled() for each in tries)
    await scene.journal.flushed()
    assert scene.told.empty()
    await scene.close()


@pytest.mark.parametrize("url", ["http://x/secret", "https://[::1]:8443/secret?secret"])
async def test_when_nothing_is_owed_the_secret_of_a_url_is_not_kept(tmp_path: Path, url: str) -> None:
    scene = await begun(tmp_path)
    scene.happened(running(1, url=url))
    told = (await scene.told.get())[1]
    (owed,), row = notices_of_job(scene.path, 1), scene.row()
    told.set_result("")
    await asyncio.sleep(0)
    await scene.close()
    (sent,) = notices_of_job(scene.path, 1)
    assert (owed.state, sent.state) == ("owed", "sent") and "secret" in row and "secret" not in scene.row()
    assert sent.target == owed.target


def test_a_row_that_somebody_has_spoilt_is_set_aside(tmp_path: Path) -> None:
    connection = open_journal(tmp_path / "journal.sqlite")
    connection.execute("INSERT INTO notices VALUES (1, 1, 'end', 0, '{}', 'owed', 0, '')")
    connection.execute("INSERT INTO notices VALUES (2, 1, 'end', 0, '{}', 'owed', -1, '')")
    assert read_notices(connection) == []
    assert msgspec.json.decode(connection.execute("SELECT data FROM quarantine").fetchone()[0])["job"] == 1
    connection.close()


# All registered features: each call is safe without the ones before, and a start goes through all of them


def job() -> JobRecord:
    return JobRecord(1, 1000, 1000, SubmitRequest(["true"], "/", {}), None, 1)


def start() -> JobStart:
    return JobStart(job(), 1, StartSpec(["true"], "/", {}), lambda: False)


async def test_each_call_is_safe_without_the_ones_before(tmp_path: Path) -> None:
    home, jobs = Home(tmp_path), JobTable()
    journal = Journal(open_journal(home.journal), asyncio.get_running_loop())
    limits = UserLimits(core_dumps=False)
    groups = JobGroups(Places(), GroupLimits())
    hooks = job_hooks(
        HookParts(
            home, DirectPrivileges(home), limits, jobs, journal, groups, (), host_devices=(), post=list[Event]().append
        )
    )
    ended, begun, said = job(), start(), list[str]()
    ended.outcome = Outcome.SUCCEEDED
    hooks.forgotten([1])
    hooks.ended(ended)
    assert hooks.remains(ended, None).removed() and hooks.remains(ended, None).end() == []
    assert hooks.exited(ended, ProcessExited(1, 0)) == ProcessExited(1, 0)
    hooks.started(job(), None)
    hooks.starting(begun, said.append)
    assert said == [""] and not begun.spec.core_dumps
    assert hooks.submit(ended.spec) is None
    hooks.restored(jobs)
    hooks.stop()
    hooks.close()
    journal.close()


def test_a_start_that_one_refuses_does_not_reach_the_next() -> None:
    class Refuses(JobHook):
        def starting(self, start: JobStart, then: object) -> None:
            assert callable(then)
            then("no room")

    class Unreached(JobHook):
        def starting(self, start: JobStart, then: object) -> None:
            raise AssertionError

    hooks, said = JobHooks(), list[str]()
    hooks.register([Refuses(), Unreached()])
    hooks.starting(start(), said.append)
    assert said == ["no room"]


class Fails(JobHook):
    """A feature with an error in each of its methods."""

    def __getattribute__(self, name: str) -> object:
        def fails(*_: object) -> None:
            raise KeyError(name)

        return fails if hasattr(JobHook, name) and not name.startswith("_") else super().__getattribute__(name)


COUNTED = ["restored", "started", "ended", "forgotten", "stop", "close"]


class Counts(JobHook):
    """A feature that adds a note to the end; what else it is asked for is counted."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> object:
        if name in COUNTED:
            self.calls.append(name)
        return super().__getattribute__(name)

    def exited(self, job: JobRecord, ending: Ending) -> Ending:
        return ProcessExited(job.id, 0, note="counted")


def test_one_that_fails_hinders_neither_the_others_nor_the_job(caplog: pytest.LogCaptureFixture) -> None:
    hooks, counts = JobHooks(), Counts()
    hooks.register([Fails(), counts])
    hooks.restored(JobTable())
    hooks.started(job(), None)
    assert hooks.exited(job(), ProcessExited(1, 0)) == ProcessExited(1, 0, note="counted")
    assert hooks.remains(job(), None).removed()
    hooks.ended(job())
    hooks.forgotten([1])
    event = Adopted(1, JobPhase.RUNNING, "host0", None, Memory(), *[False] * 4, NO_USAGE, 0)
    assert hooks.adopted(job(), event) is event
    hooks.stop()
    hooks.close()
    assert counts.calls == COUNTED
    assert caplog.messages[0] == "Fails.restored has failed: this was not expected" and len(caplog.messages) == 9


def test_what_one_that_fails_should_have_prepared_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    hooks, said = JobHooks(), list[str]()
    hooks.register([Counts(), Fails(), Counts()])
    hooks.starting(start(), said.append)
    assert said == ["Fails could not prepare it: 'starting'"] and "Fails.starting" in caplog.text


def test_an_error_after_the_preparation_is_none_of_the_feature() -> None:
    hooks, said = JobHooks(), list[str]()
    hooks.register([Counts(), Counts()])

    def then(why: str) -> None:
        said.append(why)
        raise KeyError

    with pytest.raises(KeyError):
        hooks.starting(start(), then)
    assert said == [""]


async def test_of_jobs_that_have_ended_only_the_owed_notices_are_kept(tmp_path: Path) -> None:
    scene = await begun(tmp_path)
    live, ended = running(1), running(2)
    for each in (live, ended):
        scene.happened(each)
    jobs = JobTable()
    jobs.live[live.id] = live
    scene.notices.restored(jobs)
    assert list(scene.notices._known) == [live.id]
    await scene.close()
