"""Where the time of jobs goes: what the journal has of it when they have ended."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.core import commands, events
from carpool.core.model import Attempt, Cause, JobSpec, Usage
from carpool.daemon.hooks.breakdowns import JobBreakdowns
from carpool.daemon.journal.events import JournalRemoval
from carpool.daemon.system.clock import monotonic_us
from carpool.facts.fact import Fact, What
from carpool.facts.fold import FactFeed
from carpool.facts.recorded import facts_of
from carpool.protocol.api import EventInfo
from carpool.sim.traces import read_journal
from tests.daemon.daemon_harness import Daemon
from tests.daemon.journal_file import opened
from tests.daemon.rig import Client, Rig

SECOND = 1_000_000
CORES = 2


def rows(journal: Path) -> dict[int, dict[str, Any]]:
    """The rows of jobs."""
    with closing(sqlite3.connect(journal)) as connection:
        connection.row_factory = sqlite3.Row
        return {row["job"]: dict(row) for row in connection.execute("SELECT * FROM breakdowns")}


class Followed:
    """Jobs of a rig with seats, and what happens to them at seconds of a clock that began a while ago."""

    def __init__(self, rig: Rig, journal: Path) -> None:
        self.rig, self.path = rig, journal
        self.begin_us = monotonic_us() - 100 * SECOND

    async def __aenter__(self) -> Followed:
        self.opened = opened(self.path)
        self.file = self.opened.__enter__()
        self.hook = JobBreakdowns(self.rig.jobs, self.file.journal, [self.rig.device.id], CORES)
        self.feed = FactFeed(self.hook.take)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.opened.__exit__(None, None, None)

    def us(self, seconds: float) -> int:
        return self.begin_us + round(seconds * SECOND)

    async def at(self, seconds: float, *happened: Any) -> None:
        for each in happened:
            self.feed.happened(self.us(seconds), each)
        await asyncio.sleep(0)  # the hook compares the company of all at this moment

    async def started(self, seconds: float, owner: int = 1000) -> Client:
        client = self.rig.attach(owner)
        number, client.job.started_us = client.job.id, 1
        start = commands.StartJob(number, self.rig.device.id, owner - 999)
        await self.at(seconds, events.Submitted(number, JobSpec(owner=owner)), start)
        return client

    async def turn(self, client: Client, seconds: float) -> None:
        client.seat.set("turn_start_us", self.us(seconds))
        client.seat.set("turn", 1)
        await self.at(seconds, commands.GrantTurn(client.job.lane or 0, client.job.id))

    async def iterations(self, client: Client, *seconds: float, quick: bool = False) -> None:
        """Further iterations have ended; the daemon looks after each."""
        for each in seconds:
            client.seat.set("iterations", client.seat.get("iterations") + 1)
            client.seat.set("boundary_us", self.us(each))
            self.hook.look(quick=quick)
            await asyncio.sleep(0)

    async def gives_back(self, client: Client, seconds: float) -> None:
        seat = client.seat
        seat.set("held_us", seat.get("held_us") + self.us(seconds) - seat.get("turn_start_us"))
        seat.set("turn", 0)
        await self.at(seconds, events.TurnReleased(client.job.id, Cause.EARLY, Usage()))

    async def row(self, client: Client) -> dict[str, Any]:
        """What is recorded at its end."""
        self.hook.ended(client.job)
        await self.file.journal.flushed()
        return rows(self.path)[client.job.id]


@pytest.fixture
async def followed(rig: Rig, tmp_path: Path) -> AsyncIterator[Followed]:
    async with Followed(rig, tmp_path / "journal.sqlite") as made:
        yield made


async def test_a_pace_alone_and_one_beside_another_lane(followed: Followed) -> None:
    """A second each alone, two seconds each beside another lane."""
    one, other = await followed.started(0), await followed.started(1, owner=1001)
    await followed.turn(one, 10)
    await followed.iterations(one, 16, 17, 18, 19)
    await followed.turn(other, 19.5)
    await followed.iterations(one, 21, 23, 25, 27)
    await followed.gives_back(one, 27.25)
    found = await followed.row(one)
    assert (found["alone_us"], found["alone_iterations"]) == (3 * SECOND, 3)
    assert (found["beside_us"], found["beside_iterations"]) == (6 * SECOND, 3)
    assert (found["startup_us"], found["startup_turn_us"], found["startup_iterations"]) == (10 * SECOND, 6 * SECOND, 1)
    assert (found["host_us"], found["end_turn_us"]) == (0, 0)


@pytest.mark.parametrize(("begins", "seen"), [(90, 1), (10, 3)], ids=["lately", "a minute ago"])
async def test_the_first_iteration_is_looked_for_more_often(followed: Followed, begins: int, seen: int) -> None:
    one = await followed.started(0)
    await followed.turn(one, begins)
    await followed.iterations(one, begins + 1, begins + 2, quick=True)
    await followed.iterations(one, begins + 3)
    found = await followed.row(one)
    assert (found["startup_iterations"], found["startup_turn_us"]) == (seen, seen * SECOND)


async def test_turns_of_one_lane_are_no_company(followed: Followed) -> None:
    one, other = await followed.started(0), await followed.started(0)
    for turn in (10, 12, 14):
        await followed.turn(one, turn)
        await followed.iterations(one, turn + 0.5, turn + 1)
        await followed.gives_back(one, turn + 1)
        await followed.turn(other, turn + 1)
        await followed.gives_back(other, turn + 2)
    found = await followed.row(one)
    assert (found["alone_us"], found["alone_iterations"], found["beside_iterations"]) == (2_500_000, 5, 0)
    assert found["host_us"] == 2 * SECOND, "nothing has said that it waited"


async def test_a_hand_over_in_another_lane_changes_nothing(followed: Followed) -> None:
    one, *others = [await followed.started(0, owner) for owner in (1000, 1001, 1001)]
    await followed.turn(one, 10)
    await followed.turn(others[0], 11)
    await followed.iterations(one, 12, 13, 14)
    await followed.at(14.5, events.TurnPassed(others[0].job.id, others[1].job.id, Cause.BOUNDARY, Usage()))
    await followed.iterations(one, 15, 16)
    found = await followed.row(one)
    assert (found["beside_us"], found["beside_iterations"], found["alone_iterations"]) == (4 * SECOND, 4, 0)


async def test_as_many_starting_jobs_as_cores_are_company(followed: Followed) -> None:
    one, *others = [await followed.started(0) for _ in range(1 + CORES)]
    await followed.turn(one, 10)
    await followed.iterations(one, 11, 12, 13)
    await followed.at(13.5, events.TurnWanted(others[0].job.id))  # has started up: a core is free
    await followed.iterations(one, 14, 15)
    found = await followed.row(one)
    assert (found["beside_us"], found["beside_iterations"]) == (2 * SECOND, 2)
    assert (found["alone_us"], found["alone_iterations"]) == (1 * SECOND, 1)


async def test_a_turn_that_lasts_as_long_as_the_process_ends_with_the_last_iteration(followed: Followed) -> None:
    one = await followed.started(0)
    await followed.turn(one, 10)
    await followed.iterations(one, 11, 12, 13)
    followed.rig.seating.unseat(one.job)
    await followed.at(19, events.Detached(one.job.id))
    found = await followed.row(one)
    assert (found["end_turn_us"], found["alone_us"]) == (6 * SECOND, 2 * SECOND)
    assert found["end_us"] >= found["end_turn_us"]


async def test_a_turn_without_an_iteration_is_work_to_its_end(followed: Followed) -> None:
    one = await followed.started(0)
    await followed.turn(one, 10)
    await followed.iterations(one, 11)
    await followed.gives_back(one, 12)
    await followed.turn(one, 13)
    await followed.at(19, events.Detached(one.job.id))
    assert (await followed.row(one))["end_turn_us"] == 0


async def test_of_an_attempt_of_an_earlier_daemon_the_pace_is_known(followed: Followed) -> None:
    one = followed.rig.attach()
    one.job.started_us = 1
    await followed.turn(one, 10)
    await followed.iterations(one, 11, 12, 13)
    await followed.gives_back(one, 13)
    found = await followed.row(one)
    assert [found[name] for name in ("startup_us", "startup_cpu_us", "host_us")] == [None, None, None]
    assert (found["alone_us"], found["alone_iterations"]) == (2 * SECOND, 2)
    await JournalRemoval(followed.file.journal, followed.path).jobs([one.job.id])
    assert not rows(followed.path)


async def test_what_a_job_claims_can_be_recorded(followed: Followed) -> None:
    one = await followed.started(0)
    await followed.turn(one, 10)
    await followed.iterations(one, 11)
    for word in ("held_us", "turn_start_us", "iterations", "boundary_us"):
        one.seat.set(word, 2**64 - 1)
    await followed.at(12, events.TurnReleased(one.job.id, Cause.EARLY, Usage()))
    assert max(value or 0 for value in (await followed.row(one)).values()) <= 2**53


async def test_a_failed_attempt_counts_for_nothing(followed: Followed) -> None:
    one = await followed.started(0)
    await followed.turn(one, 10)
    await followed.iterations(one, 11, 12)
    retried = commands.RetryJob(one.job.id, 2, Attempt("it failed", "host0"), None)
    await followed.at(20, retried)
    await followed.at(30, commands.StartJob(one.job.id, "host0", 1))
    found = await followed.row(one)
    assert (found["alone_iterations"], found["startup_turn_us"]) == (0, 0)
    assert found["startup_us"] < monotonic_us() - followed.us(29)


def test_the_parts_of_a_job_alone_add_up_to_its_time(daemon: Daemon) -> None:
    """Start-up, turns, host time between them, the end, and waits for turns that were free."""
    job = daemon.fake("attach", "iterate:3", "release", "iterate:2", "release", ended=True)
    told = [msgspec.convert(event, EventInfo) for event in daemon.events()]
    (start,), (end,) = ([each.now_us for each in told if each.kind == kind] for kind in ("StartJob", "EndJob"))
    seen_us = monotonic_us()
    daemon.terminate()
    found = rows(daemon.home / "journal.sqlite")[job]
    facts = [fact for fact in facts_of(told) if isinstance(fact, Fact) and fact.what in (What.TURN, What.WAITS)]
    host_us = found["startup_us"] + found["host_us"] + found["end_us"] - found["end_turn_us"]
    assert end - start <= host_us + sum(fact.lasted_us for fact in facts) <= seen_us - start, found
    assert (found["end_turn_us"], found["beside_iterations"]) == (0, 0)
    (simulated,), notes = read_journal(daemon.home)
    unhurried_us = (found["startup_delay_us"] or 0) + (found["end_delay_us"] or 0)
    assert simulated.duration_us + unhurried_us <= seen_us - start
    assert notes == ["device time is that of a job alone: the pace of 1 is known, 0 count as recorded"]
