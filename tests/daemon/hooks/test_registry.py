"""All registered features: each call is safe without the ones before, and a start goes through all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from carpool.core.events import ProcessExited
from carpool.core.model import Outcome
from carpool.daemon.cgroups.job_groups import GroupLimits, JobGroups
from carpool.daemon.cgroups.places import Places
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.hooks.base import JobHook, JobHooks, JobStart
from carpool.daemon.hooks.registry import HookParts, job_hooks
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.protocol.api import SubmitRequest
from carpool.protocol.paths import Home
from carpool.protocol.session import StartSpec


def job() -> JobRecord:
    return JobRecord(1, 1000, 1000, SubmitRequest(["true"], "/", {}), None, 1)


def start() -> JobStart:
    return JobStart(job(), 1, StartSpec(["true"], "/", {}), lambda: False)


async def test_each_call_is_safe_without_the_ones_before(tmp_path: Path) -> None:
    home, jobs = Home(tmp_path), JobTable()
    journal = Journal(open_journal(home.journal), asyncio.get_running_loop())
    limits = UserLimits(core_dumps=False)
    groups = JobGroups(Places(), GroupLimits())
    hooks = job_hooks(HookParts(home, DirectPrivileges(home), limits, jobs, journal, groups, notices=()))
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
