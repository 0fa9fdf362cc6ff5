"""What devices did: in memory, in the journal, over restarts."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest

from carpool.daemon.api.history import HistoryQuery, parts_of
from carpool.daemon.journal import usage
from carpool.daemon.journal.history import (
    DAY,
    HOUR,
    MINUTE,
    NOBODY,
    HistoryKeeper,
    HistoryRow,
    additions,
)
from carpool.daemon.journal.rows import read_only
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.usage import DEVICES, RECENT_US, BusyTime, DeviceHistory
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import begin_of, day_after, day_of
from carpool.telemetry.samples import CapabilityLevel, RollupSpan, Sample, buckets
from tests.daemon.daemon_harness import Make, Refused, refusal
from tests.daemon.journal_file import local, opened, sql

SECOND = 1_000_000
START = 1_790_000_000 * SECOND // HOUR * HOUR


def sample(used: int) -> Sample:
    return Sample(0, CapabilityLevel.HOST, used_bytes=used)


def with_history(path: Path, work: Callable[[DeviceHistory], Awaitable[None]]) -> None:
    """A daemon's worth of it: opened, used, closed."""

    async def run() -> None:
        with opened(path) as daemon:
            history = DeviceHistory(daemon.journal, path)
            await work(history)
            history.close()

    asyncio.run(run())


def add(*samples: tuple[int, int]) -> Callable[[DeviceHistory], Awaitable[None]]:
    async def work(history: DeviceHistory) -> None:
        for when, used in samples:
            history.add("host0", START + when, sample(used))

    return work


def stored(path: Path, step: int, device: str = "host0") -> dict[int, RollupSpan]:
    found = DeviceHistory(cast(Journal, None), path).stored(device, step, 0, 1 << 60)
    return {when - START: spans["used_bytes"] for when, spans in buckets(found, step).items()}


def keep(path: Path, now: int) -> None:
    async def run() -> None:
        with opened(path) as daemon:
            await HistoryKeeper(daemon.journal, path, [DEVICES]).keep(START + now)

    asyncio.run(run())


def rows(path: Path, step: int) -> int:
    return len(sql(path, "SELECT 1 FROM history WHERE step_us = ?", step))


def test_minutes_and_hours(path: Path) -> None:
    with_history(path, add((0, 5), (30 * SECOND, 1), (MINUTE, 7), (HOUR, 9)))
    assert stored(path, MINUTE) == {
        0: RollupSpan(1, 6, 5, 2),
        MINUTE: RollupSpan(7, 7, 7, 1),
        HOUR: RollupSpan(9, 9, 9, 1),
    }
    assert stored(path, HOUR) == {0: RollupSpan(1, 13, 7, 3), HOUR: RollupSpan(9, 9, 9, 1)}
    assert stored(path, HOUR, "host1") == {}


def test_a_restart_within_a_minute_adds_to_it(path: Path) -> None:
    with_history(path, add((0, 5), (SECOND, 6)))
    with_history(path, add((2 * SECOND, 1)))
    assert stored(path, MINUTE) == stored(path, HOUR) == {0: RollupSpan(1, 12, 6, 3)}


def test_a_clock_that_is_set_back_adds_to_it_too(path: Path) -> None:
    with_history(path, add((MINUTE, 5), (0, 6), (MINUTE, 7)))
    assert stored(path, MINUTE) == {0: RollupSpan(6, 6, 6, 1), MINUTE: RollupSpan(5, 12, 7, 2)}


def test_a_week_later_there_is_a_row_an_hour(path: Path) -> None:
    with_history(path, add(*((minute * MINUTE, minute) for minute in range(200))))
    before = stored(path, HOUR)
    keep(path, 7 * DAY + 3 * HOUR)
    assert (rows(path, HOUR), rows(path, MINUTE)) == (3, 20)
    with_history(path, add((5 * MINUTE, 7), (20 * HOUR, 7)))  # the clock has been set back
    keep(path, 8 * DAY)
    assert (rows(path, HOUR), rows(path, MINUTE)) == (5, 0)
    new = {0: RollupSpan(0, 60 * 59 // 2 + 7, 59, 61), 20 * HOUR: RollupSpan(7, 7, 7, 1)}
    assert stored(path, HOUR) == before | new


def test_what_is_old_goes(path: Path) -> None:
    with_history(path, add((0, 5), (8 * DAY, 6), (8 * DAY + MINUTE, 7)))
    keep(path, 8 * DAY + MINUTE)
    assert list(stored(path, MINUTE)) == [8 * DAY, 8 * DAY + MINUTE]
    assert list(stored(path, HOUR)) == [0, 8 * DAY]
    with_history(path, add((91 * DAY, 5), (91 * DAY + MINUTE, 6)))
    keep(path, 91 * DAY + MINUTE)
    assert list(stored(path, HOUR)) == [8 * DAY, 91 * DAY]


def test_rows_that_make_no_sense_are_left_out(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with_history(path, add((0, 5), (MINUTE, 6), (2 * MINUTE, 7), (3 * MINUTE, 8), (4 * MINUTE, 9)))
    spoilt = [msgspec.msgpack.encode({"used_bytes": span}) for span in ((1, 1, 1, 0), ("much", 1, 1, 1), (1, 9, 3, 1))]
    for number, value in enumerate([*spoilt, b"{"]):
        sql(path, "UPDATE history SET value = ? WHERE begin_us = ?", value, START + number * MINUTE)
    assert stored(path, MINUTE) == {4 * MINUTE: RollupSpan(9, 9, 9, 1)}
    assert caplog.text.count("is invalid, and is left out") == 4


@pytest.mark.parametrize("change", ["begin_us = -9223372036854775808", "begin_us = 9223372036854775807", "owner = -2"])
def test_a_row_with_impossible_columns_goes_and_the_others_become_an_hour(path: Path, change: str) -> None:
    with_history(path, add((0, 5), (MINUTE, 6), (2 * MINUTE, 7)))
    sql(path, f"UPDATE history SET {change} WHERE number = 2")
    assert list(stored(path, MINUTE)) == [0, 2 * MINUTE]
    keep(path, 8 * DAY)
    assert (rows(path, MINUTE), rows(path, HOUR), stored(path, HOUR)) == (0, 1, {0: RollupSpan(5, 12, 7, 2)})


@pytest.mark.parametrize(("span", "kept"), [((0, 0, 0, 2**64 - 1), 0), ((0, 2**60, 2**60, 2**32), 20)])
def test_sums_that_are_too_large_to_be_written_are_left_out(
    path: Path, span: tuple[int, int, int, int], kept: int
) -> None:
    with_history(path, add(*((minute * MINUTE, 1) for minute in range(20))))
    value = {"power_mw": span, "used_bytes": (1, 1, 1, 1)}
    sql(path, "UPDATE history SET value = ?", msgspec.msgpack.encode(value))
    keep(path, 8 * DAY)
    assert stored(path, HOUR) == ({0: RollupSpan(1, kept, 1, kept)} if kept else {})


def test_a_spoilt_row_costs_a_sum_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(open_journal(path)) as connection:
        spans = [(1, 4, 3, 2), (1, 1, 1, 0), ("much", 1, 1, 1), (1, 9, 3, 1)]
        values = [*(msgspec.msgpack.encode({"jobs_busy_ppm": span}) for span in spans), b"{", "a text", 5]
        insert = "INSERT INTO history VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
        place = (DEVICES.name, "host0", NOBODY, MINUTE, START, START + MINUTE)
        connection.executemany(insert, [(*place, value) for value in values])
    history = DeviceHistory(cast(Journal, None), path)
    assert history.busy_times("host0", [START, START + DAY]) == [BusyTime(4, 2)]
    assert caplog.text.count("is invalid, and is left out") == 4


def busy_by_minute(path: Path, minutes: int) -> None:
    """Write a week and more of minutes; a quantity is missing in some, and some are there twice."""
    draw = random.Random(1)

    def row(minute: int) -> HistoryRow:
        value, count = draw.randrange(1_000_000), draw.randrange(1, 600)
        quantities = {"used_bytes": RollupSpan(1, count, 1, count)}
        if draw.random() > 0.1:
            quantities["jobs_busy_ppm"] = RollupSpan(value // 2, value * count, value, count)
        begin = START + minute * MINUTE
        return HistoryRow(0, "cuda0", NOBODY, MINUTE, begin, begin + MINUTE, msgspec.msgpack.encode(quantities))

    with closing(open_journal(path)) as connection:
        rows = [row(minute) for minute in range(minutes)]
        connection.executemany(*additions(DEVICES.name, [*rows, *rows[::100]]))


@pytest.fixture(params=["Europe/Berlin", "Asia/Kolkata"])
def _zone(request: pytest.FixtureRequest) -> Iterator[None]:
    with local(request.param):
        yield


@pytest.mark.usefixtures("_zone")
def test_sums_of_days_are_those_of_their_rows_and_few_rows_are_fetched(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy_by_minute(path, 9 * DAY // MINUTE)
    keep(path, 9 * DAY)
    assert rows(path, HOUR) and rows(path, MINUTE) > 10_000
    history, fetched = DeviceHistory(cast(Journal, None), path), []
    days = [day_after(day_of(START), number) for number in range(-1, 12)]
    bounds = [begin_of(day) for day in (*days, day_after(days[-1]))]
    expected = dict.fromkeys(days, BusyTime())
    for when, spans in history.stored("cuda0", HOUR, bounds[0], bounds[-1]):
        expected[day_of(when)] = expected[day_of(when)].with_(spans.get("jobs_busy_ppm"))

    @contextmanager
    def counted(path: Path) -> Iterator[sqlite3.Connection]:
        with read_only(path) as connection:
            connection.row_factory = lambda cursor, row: fetched.append(row) or row
            yield connection

    monkeypatch.setattr(usage, "read_only", counted)
    assert history.busy_times("cuda0", bounds) == list(expected.values())
    assert len([each for each in expected.values() if each.mean_ppm]) >= 10 and len(fetched) == len(days)
    assert history.busy_times("cuda1", bounds) == [BusyTime()] * len(days)


def test_memory_holds_the_last_minutes(path: Path) -> None:
    async def work(history: DeviceHistory) -> None:
        for second in range(0, 2 * RECENT_US // SECOND, 10):
            history.add("host0", START + second * SECOND, sample(second))
        recent = history.recent("host0")
        assert recent[-1][0] - recent[0][0] == RECENT_US
        assert len(recent) == RECENT_US // SECOND // 10 + 1
        opened = history.opened("host0")
        assert opened is not None and opened[1]["used_bytes"].samples == 6
        assert history.recent("host1") == [] and history.opened("host1") is None

    with_history(path, work)


def test_a_minute_that_ends_while_it_is_read_counts_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = HistoryQuery(START, START + HOUR, MINUTE)

    async def work(history: DeviceHistory) -> None:
        written = history.written

        async def late() -> None:
            if len(history.recent("host0")) == 1:
                history.add("host0", START + MINUTE, sample(2))
            await written()

        history.add("host0", START, sample(1))
        monkeypatch.setattr(history, "written", late)
        parts = await parts_of(history, "host0", asked)
        assert [(when - START, spans["used_bytes"].samples) for when, spans in parts] == [(0, 1), (MINUTE, 1)]

    with_history(path, work)


def test_a_daemon_answers_and_remembers(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:64MiB", "--telemetry-interval", "100ms").started()

    def past(query: str) -> dict[str, object]:
        return daemon.get(f"/v1/devices/host0/telemetry?{query}")

    while len((found := past("step=100000"))["points"]) < 2:  # type: ignore[arg-type]
        pass
    assert (found["device"], found["step_us"], found["source"]) == ("host0", 100_000, "memory")
    minutes = past("")
    assert (minutes["step_us"], minutes["source"]) == (MINUTE, "minutes")
    points = minutes["points"]
    assert isinstance(points, list)
    spans = [point["quantities"]["used_bytes"] for point in points]  # the minute that has begun is among them
    assert all(span["min"] == span["mean"] == span["max"] == 0 for span in spans)
    count = sum(span["samples"] for span in spans)
    daemon.terminate()
    daemon.started()
    again = past("")["points"]
    assert isinstance(again, list)
    assert sum(point["quantities"]["used_bytes"]["samples"] for point in again) >= count > 0
    assert past(f"since=0&step={HOUR * 24 * 7}")["source"] == "hours"
    for query, code in (
        ("step=61000000", "bad_step"),
        ("since=0&step=60000000", "too_many_points"),
        ("step=0", "bad_step"),
    ):
        assert refusal(past, query).answer == (400, code)
    with pytest.raises(Refused, match="no device 'host9'"):
        daemon.get("/v1/devices/host9/telemetry")
