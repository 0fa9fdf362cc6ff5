"""Blocks in a real journal: what they say, what becomes of old ones, and that nobody pushes out others' turns."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from carpool.core import commands, events
from carpool.core.model import Cause, Usage
from carpool.daemon.journal import turn_recorder
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.turn_blocks import TurnSpan
from carpool.daemon.journal.turn_store import BLOCK_TURNS, HOUR, BlockSize, LaneKey, TurnStore, chosen_blocks
from carpool.daemon.journal.writer import Journal

LANE: LaneKey = ("host0", 1, 1000)
BEGIN = 1_700_000_000_000_000
QUOTA = 64 << 20


class Times:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.now_us = BEGIN

    def __call__(self) -> int:
        return self.now_us


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    times = Times()
    monkeypatch.setattr(turn_recorder, "wall_us", times)
    monkeypatch.setattr("carpool.daemon.journal.turn_store.wall_us", times)
    return times


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(open_journal(tmp_path / "j"), asyncio.get_running_loop())
    yield journal
    journal.close()


@pytest.fixture
def store(journal: Journal, tmp_path: Path, times: Times) -> TurnStore:
    store = TurnStore(journal, tmp_path / "j", lambda job: 1000, QUOTA)
    store.heard(0, commands.OpenLane(1, "host0", 1000, 0))
    return store


def pass_turns(store: TurnStore, times: Times, count: int, each_us: int = 1000) -> None:
    """From job 1 to job 2 and back."""
    store.heard(0, commands.GrantTurn(1, 1))
    for number in range(count):
        times.now_us += each_us
        one, other = (1, 2) if number % 2 == 0 else (2, 1)
        store.heard(0, events.TurnPassed(one, other, Cause.BOUNDARY, Usage()))


async def shown(store: TurnStore, since_us: int, until_us: int, bins: int = 4000) -> list[TurnSpan]:
    _, found = await store.between(since_us, until_us, bins, lambda key: True)
    return found.get(LANE, [])


async def test_turns_are_told_whether_or_not_they_are_in_a_block(store: TurnStore, times: Times) -> None:
    pass_turns(store, times, BLOCK_TURNS + 7)
    spans = await shown(store, BEGIN, times.now_us + 1)
    assert len(spans) == BLOCK_TURNS + 8 and spans[-1].busy_us == 0, "the last one has just begun"
    assert spans[0] == TurnSpan(BEGIN, BEGIN + 1000, 1, 1, "boundary", 1000)
    assert [span.job for span in spans[:4]] == [1, 2, 1, 2]
    times.now_us += 500
    latest = (await shown(store, BEGIN, times.now_us + 1))[-1]
    assert (latest.cause, latest.busy_us) == ("", 500), "it goes on"
    few = await shown(store, BEGIN, times.now_us + 1, bins=10)
    assert len(few) == 10 and sum(span.turns for span in few) == BLOCK_TURNS + 8


async def test_turns_outlive_the_store(store: TurnStore, times: Times, journal: Journal, tmp_path: Path) -> None:
    pass_turns(store, times, 5)
    times.now_us += 300
    store.close()
    later = TurnStore(journal, tmp_path / "j", lambda job: 1000, QUOTA)
    spans = await shown(later, BEGIN, times.now_us + 1)
    assert [span.cause for span in spans] == [*["boundary"] * 5, "unknown"]
    kept_from, _ = await later.between(BEGIN, times.now_us, 10, lambda key: True)
    assert kept_from == BEGIN


async def test_a_clock_that_goes_back_breaks_no_order(store: TurnStore, times: Times) -> None:
    pass_turns(store, times, 3)
    times.now_us -= HOUR
    pass_turns(store, times, 3)
    spans = await shown(store, BEGIN - HOUR, BEGIN + HOUR)
    assert all(left.end_us <= right.begin_us for left, right in pairwise(spans))


async def test_others_lanes_are_left_out(store: TurnStore, times: Times) -> None:
    pass_turns(store, times, BLOCK_TURNS + 5)
    _, found = await store.between(BEGIN, times.now_us + 1, 10, lambda key: key[2] != 1000)
    assert found == {}


async def test_a_spoilt_block_is_left_out(store: TurnStore, times: Times, tmp_path: Path) -> None:
    pass_turns(store, times, 2 * BLOCK_TURNS)
    await shown(store, BEGIN, times.now_us)
    with closing(sqlite3.connect(tmp_path / "j")) as connection, connection:
        connection.execute("UPDATE turns SET data = x'0102' WHERE id = 1")
    assert len(await shown(store, BEGIN, times.now_us)) == BLOCK_TURNS


async def test_old_turns_are_merged_and_then_deleted(store: TurnStore, times: Times) -> None:
    pass_turns(store, times, 3 * BLOCK_TURNS, each_us=3000)
    end_us = times.now_us
    assert await store.shorten(end_us) == 0
    assert await store.shorten(end_us + HOUR + 1) == 3
    seconds = await shown(store, BEGIN, end_us)
    assert 9 <= len(seconds) <= 12 and sum(span.turns for span in seconds) == 3 * BLOCK_TURNS
    assert await store.shorten(end_us + 25 * HOUR) > 0
    minutes = await shown(store, BEGIN, end_us)
    assert len(minutes) <= 2 and sum(span.busy_us for span in minutes) == end_us - BEGIN
    assert await store.shorten(end_us + 91 * 24 * HOUR) > 0
    times.now_us += 1
    assert await shown(store, BEGIN, end_us) == []


def sizes(lane: int, count: int, size: int, step_us: int = 0) -> list[BlockSize]:
    return [BlockSize(1000 * lane + n, "host0", lane, step_us, BEGIN + n, BEGIN + n + 1, size) for n in range(count)]


def test_the_lane_with_most_pays_for_the_quota() -> None:
    small, large = sizes(1, 5, 1000), sizes(2, 100, 24_000)
    blocks = sorted(small + large, key=lambda block: block.first_us)
    chosen = chosen_blocks(blocks, BEGIN + 200, quota=2_000_000)
    kept = [block for block in blocks if block.id not in chosen]
    assert sum(block.bytes for block in kept) <= 1_000_000
    assert set(small) <= set(kept), "the other lane's turns stay, although they are the oldest"
    assert chosen == [block.id for block in large[: len(chosen)]], "the oldest first"


def test_one_look_is_bounded() -> None:
    assert len(chosen_blocks(sizes(1, 5000, 24_000), BEGIN + HOUR * 2, quota=1)) == 500
