"""The history of turns in the journal: coarser with age, within its quota, and fair to users."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from carpool.daemon.journal.history import DAY, HOUR, SECOND, HistoryKeeper, additions
from carpool.daemon.journal.offline import back_up
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.turn_blocks import CODES, TurnSpan
from carpool.daemon.journal.turns import TURNS, Lanes, PastTurns, TurnBlock, TurnQuery, kept_turns, row_of
from carpool.daemon.journal.writer import Journal
from tests.daemon.journal_file import opened, sql

START = 1_790_000_000 * SECOND // DAY * DAY
MINUTE = 60 * SECOND
BOUNDARY = CODES["boundary"]
MUCH = 1 << 30


def block(begin: int, count: int, owner: int = 5, lane: int = 1, every: int = 20_000) -> TurnBlock:
    """Turns of two jobs, of half the time each."""
    begins = [START + begin + every * number for number in range(count)]
    spans = [TurnSpan(at, at + every // 2, 1 + at // every % 2, 1, BOUNDARY, every // 2) for at in begins]
    return TurnBlock("host0", lane, owner, spans)


def fill(path: Path, blocks: Sequence[TurnBlock]) -> None:
    with closing(open_journal(path)) as connection:
        connection.execute("BEGIN")
        connection.executemany(*additions(TURNS, map(row_of, blocks)))
        connection.execute("COMMIT")


def with_journal(path: Path, work: Callable[[Journal], Awaitable[object]]) -> Any:
    async def run() -> object:
        with opened(path) as daemon:
            return await work(daemon.journal)

    return asyncio.run(run())


def with_turns(path: Path, work: Callable[[PastTurns], Awaitable[object]]) -> Any:
    return with_journal(path, lambda journal: work(PastTurns(journal, path)))


def keep(path: Path, now: int, most_bytes: int = MUCH, keep_us: int = 90 * DAY) -> None:
    series = [kept_turns(most_bytes, keep_us)]
    with_journal(path, lambda journal: HistoryKeeper(journal, path, series).keep(START + now))


def read(path: Path, since: int = 0, until: int = 10 * DAY, bins: int = 4000, owner: int | None = None) -> Lanes:
    asked = TurnQuery(START + since, START + until, bins, None, owner)
    found: Lanes = with_turns(path, lambda turns: turns.read(asked))[0]
    return found


def rows(path: Path, what: str) -> list[tuple[int, ...]]:
    return sql(path, f"SELECT {what} FROM history ORDER BY number")


def sums(spans: Sequence[TurnSpan]) -> tuple[int, int]:
    return sum(span.turns for span in spans), sum(span.busy_us for span in spans)


def test_turns_that_were_written_are_read_exactly(path: Path) -> None:
    fill(path, [block(0, 1000), block(MINUTE, 500)])
    found = read(path, until=4000)
    assert found == {("host0", 1): block(0, 1).spans}
    found = read(path, since=MINUTE, until=MINUTE + 4000 * 2500)
    assert found == {("host0", 1): block(MINUTE, 500).spans}


def test_an_hour_later_there_is_an_entry_a_second_and_a_day_later_one_a_minute(path: Path) -> None:
    fill(path, [block(minute * MINUTE, 1000, every=60_000) for minute in range(100)])
    whole = sums(read(path)[("host0", 1)])
    assert whole == (100_000, 100_000 * 30_000)
    keep(path, HOUR + 30 * MINUTE)
    assert {step for (step,) in rows(path, "step_us")} == {0}, "an hour is merged when all of it is old"
    keep(path, 2 * HOUR + MINUTE)
    assert [step for (step,) in rows(path, "step_us")] == [SECOND] + [0] * 40
    assert sums(read(path)[("host0", 1)]) == whole
    keep(path, 2 * DAY)
    assert rows(path, "step_us, begin_us, number") == [(MINUTE, START, 100)]
    found = read(path, until=HOUR)[("host0", 1)]
    assert len(found) == 60 and sums(found) == (60_000, 60_000 * 30_000)
    keep(path, 91 * DAY + 2 * HOUR)
    assert rows(path, "number") == []


def test_lanes_of_two_users_with_one_number_are_not_merged(path: Path) -> None:
    fill(path, [block(0, 10, owner=5), block(MINUTE, 10, owner=6), block(2 * MINUTE, 10, owner=5)])
    keep(path, 3 * DAY)
    assert sorted(rows(path, "owner, step_us")) == [(5, MINUTE), (5, MINUTE), (6, MINUTE)]
    assert sums(read(path, owner=6)[("host0", 1)]) == (10, 100_000)
    assert sums(read(path)[("host0", 1)]) == (30, 300_000)


def test_many_turns_of_one_user_cost_no_other_user_history(path: Path) -> None:
    quiet = [block(minute * MINUTE, 10, owner=6, lane=2) for minute in range(20)]
    noisy = [block(minute * MINUTE, 1000, owner=5, every=59_000 - minute) for minute in range(40)]
    tiny = [block(minute * MINUTE, 1, owner=5, lane=9 + minute) for minute in range(200)]
    fill(path, [*quiet, *noisy, *tiny])
    before = read(path)[("host0", 2)]
    most = 16_000
    keep(path, 30 * MINUTE, most_bytes=most)
    assert sum(size for (size,) in rows(path, "length(value)")) <= most
    assert read(path)[("host0", 2)] == before
    assert [step for step, owner in rows(path, "step_us, owner") if owner == 6] == [0] * 20
    assert any(owner == 5 for (owner,) in rows(path, "owner"))


def test_the_quota_makes_turns_coarser_before_they_go(path: Path) -> None:
    fill(path, [block(minute * MINUTE, 1000, every=60_000) for minute in range(60)])
    whole, size = sums(read(path)[("host0", 1)]), sum(size for (size,) in rows(path, "length(value)"))
    keep(path, 30 * MINUTE, most_bytes=size // 2)
    assert sums(read(path)[("host0", 1)]) == whole
    steps = [step for (step,) in rows(path, "step_us")]
    assert steps == sorted(steps, reverse=True) and steps[-1] == 0, "the newest stay exact"
    keep(path, 30 * MINUTE, most_bytes=100)
    assert rows(path, "number") == []


@pytest.mark.parametrize(
    "change", ["value = 'x'", "value = x'00'", "key = x'00'", "key = '[]'", "owner = 'me'", "begin_us = 'now'"]
)
def test_spoilt_rows_are_left_out_and_go(path: Path, change: str) -> None:
    fill(path, [block(0, 10), block(MINUTE, 10), block(2 * MINUTE, 10)])
    sql(path, f"UPDATE history SET {change} WHERE number = 2")
    assert sums(read(path)[("host0", 1)]) == (20, 200_000)
    keep(path, 3 * DAY)
    assert sums(read(path)[("host0", 1)]) == (20, 200_000)
    assert len(rows(path, "number")) <= 2


def test_a_row_before_all_times_does_not_say_since_when_turns_are_kept(path: Path) -> None:
    fill(path, [block(0, 10), block(MINUTE, 10)])
    sql(path, "UPDATE history SET begin_us = -5 WHERE number = 1")
    asked = TurnQuery(0, START + DAY, 1000)
    assert with_turns(path, lambda turns: turns.read(asked))[1] == START + MINUTE


@pytest.mark.parametrize(("owner", "left"), [("NULL", 2), ("1.5", 2), ("CAST(x'ff' AS TEXT)", 10)])
def test_rows_without_a_user_do_not_stop_the_keeper(path: Path, owner: str, left: int) -> None:
    """The keeper reduces the history of the user with most."""
    fill(path, [block(minute * MINUTE, 10) for minute in range(10)])
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '');"
            f"PRAGMA writable_schema = RESET; UPDATE history SET owner = {owner} WHERE number < 9"
        )
    keep(path, 0, most_bytes=500)
    assert len(rows(path, "number")) == left


@pytest.mark.parametrize("span", [(START, START + 2**60, 1), (START, START + 5, 2**64 - 1)])
def test_turns_of_impossible_jobs_or_lengths_are_left_out(path: Path, span: tuple[int, int, int]) -> None:
    begin, end, job = span
    fill(path, [TurnBlock("host0", 1, 5, [TurnSpan(begin, end, job, 1, BOUNDARY, end - begin)])])
    assert read(path) == {}


def test_what_was_recorded_after_the_clock_was_set_back_counts(path: Path) -> None:
    fill(path, [block(0, 100, every=SECOND), block(50 * SECOND, 10, every=SECOND)])
    found = read(path, until=4000 * 50_000)[("host0", 1)]
    assert sums(found)[0] == 60 and all(a.end_us <= b.begin_us for a, b in pairwise(found))


def test_a_copy_of_the_journal_has_the_turns(path: Path, tmp_path: Path) -> None:
    fill(path, [block(minute * MINUTE, 10) for minute in range(10)])
    back_up(path, tmp_path / "copy", force=False)
    assert rows(tmp_path / "copy", "*") == rows(path, "*")
    keep(tmp_path / "copy", 3 * DAY)
    assert len(rows(tmp_path / "copy", "number")) == 1


def test_turns_in_memory_and_in_the_journal_are_there_once(path: Path) -> None:
    fill(path, [block(0, 10)])

    async def work(turns: PastTurns) -> object:
        reading = asyncio.create_task(turns.read(TurnQuery(START, START + DAY, 100)))
        await asyncio.sleep(0)
        turns._put(block(MINUTE, 10))  # written while the answer is made: it is not among these
        return await reading

    lanes, kept_from = with_turns(path, work)
    assert sums(lanes[("host0", 1)])[0] == 10 and kept_from == START
    assert sums(read(path)[("host0", 1)])[0] == 20
