"""What users have used, by day: added to as attempts and jobs end, and read back whatever a row has become."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.core.model import Attempt, Outcome, Usage
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.daemon.journal import usage
from carpool.daemon.journal.history import DAY as DAY_US
from carpool.daemon.journal.history import HistoryKeeper
from carpool.daemon.journal.writer import Statement
from carpool.daemon.system.clock import begin_of, day_after
from carpool.protocol.api import SubmitRequest
from tests.daemon.journal_file import local, opened, sql

HOUR = 3_600_000_000
DAY = "2026-03-28"  # the night after it is an hour shorter


@pytest.fixture(autouse=True)
def _berlin() -> Iterator[None]:
    with local("Europe/Berlin"):
        yield


def job(number: int = 1, *, gpus: int = 1, past: tuple[Ended, ...] = (), device_us: int = 0) -> JobRecord:
    """It was submitted at noon, began an hour later, and ends at noon of the next day."""
    noon = begin_of(DAY) + 12 * HOUR
    spec = SubmitRequest(["true"], "/", {}, gpus=gpus)
    made = JobRecord(number, 1000, 1000, spec, None, noon, past=past, started_us=noon + HOUR)
    made.usage, made.outcome = Usage(device_us=device_us), Outcome.SUCCEEDED
    made.ended_us = noon + 23 * HOUR
    return made


def write(connection: sqlite3.Connection, statement: Statement) -> None:
    connection.executemany(*statement)


async def keep(path: Path, now: int) -> None:
    with opened(path) as daemon:
        await HistoryKeeper(daemon.journal, path, [usage.USE]).keep(now)


def read(path: Path, owner: int | None = None) -> list[tuple[str, int, str, int, int, int]]:
    return [tuple(use) for use in usage.stored(path, "1970-01-01", "2200-01-01", owner)]


def test_device_time_is_spread_and_the_end_counts_once(connection: sqlite3.Connection, path: Path) -> None:
    write(connection, usage.use_of_ended(job(1, device_us=22 * HOUR // 2)))
    write(connection, usage.use_of_ended(job(2, device_us=22 * HOUR // 2, gpus=2)))  # it holds them all the time
    assert read(path) == [
        (DAY, 1000, "succeeded", 11 * HOUR // 2 + 2 * 11 * HOUR, 0, 0),
        (day_after(DAY), 1000, "succeeded", 11 * HOUR // 2 + 2 * 11 * HOUR, 2, 2 * HOUR),
    ]
    assert read(path, owner=1000) == read(path) and read(path, owner=1001) == []


def test_attempts_that_came_to_nothing_have_used_something(connection: sqlite3.Connection, path: Path) -> None:
    begin = begin_of(DAY)
    past = Ended(Attempt("it failed", "host0"), begin, begin + HOUR, device_us=HOUR // 4)
    again = job(past=(past,))
    write(connection, usage.use_of_failed(again))
    assert read(path) == [(DAY, 1000, "", HOUR // 4, 0, 0)]


def test_no_attempt_has_had_more_device_time_than_it_ran(connection: sqlite3.Connection, path: Path) -> None:
    write(connection, usage.use_of_ended(job(device_us=2**62)))
    assert sum(row[3] for row in read(path)) == 22 * HOUR


def test_jobs_that_never_ran_have_waited(connection: sqlite3.Connection, path: Path) -> None:
    refused = job()
    refused.started_us, refused.outcome = None, Outcome.REFUSED
    write(connection, usage.use_of_ended(refused))
    assert read(path) == [(day_after(DAY), 1000, "refused", 0, 1, 23 * HOUR)]


async def test_days_that_are_over_are_added_up(connection: sqlite3.Connection, path: Path) -> None:
    """Also what is recorded of them later, at the end of a job that has run since."""
    for number in range(1, 100):
        write(connection, usage.use_of_ended(job(number, device_us=number)))
    before = read(path)
    await keep(path, begin_of(DAY) + 3 * DAY_US)
    assert read(path) == before and [use[4] for use in before] == [0, 99]
    assert sql(path, "SELECT count(*) FROM history") == [(2,)]
    write(connection, usage.use_of_ended(job(100, device_us=100)))
    after = read(path)
    assert sum(use[3] for use in after) == sum(range(101)) and after[1][4] == 100
    await keep(path, begin_of(DAY) + 3 * DAY_US)
    assert sql(path, "SELECT count(*) FROM history") == [(2,)]
    assert read(path) == after


async def test_rows_are_forgotten_after_their_time(connection: sqlite3.Connection, path: Path) -> None:
    write(connection, usage.use_of_ended(job(device_us=HOUR)))
    kept = begin_of(day_after(DAY, usage.KEPT_DAYS))
    await keep(path, kept)
    assert [use[0] for use in read(path)] == [DAY, day_after(DAY)]
    await keep(path, kept + DAY_US)
    assert [use[0] for use in read(path)] == [day_after(DAY)]


def test_a_day_is_the_same_day_in_another_time_zone(connection: sqlite3.Connection, path: Path) -> None:
    write(connection, usage.use_of_ended(job()))
    before = read(path)
    with local("Pacific/Auckland"):
        assert read(path) == before


def test_spoilt_rows_are_left_out_and_said(
    connection: sqlite3.Connection, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[tuple[str, object, str]] = [("failed", -1, "[1,1,1]"), ("\x1b[2J", 1, "[1,1,1]")]
    rows += [("failed", 2, '["much",1,1]'), ("failed", 3, "[-5,1,1]"), ("failed", 4, "[1.5,1,1]")]
    rows += [("failed", "x", "[1,1,1]"), ("failed", 5, "[7,1,0]"), ("failed", 7, "[9007199254740993,1,1]")]
    begin = usage._begin(DAY)
    columns = "series, step_us, begin_us, end_us, key, owner, value"
    insert = f"INSERT INTO history ({columns}) VALUES ('use', 0, {begin}, {begin}, ?, ?, CAST(? AS BLOB))"
    connection.executemany(insert, rows)
    connection.execute(insert.replace("?", "CAST(x'ff' AS TEXT)", 1), (6, "[1,1,1]"))
    assert read(path) == [(DAY, 5, "failed", 7, 1, 0)]
    assert caplog.text.count("is invalid") == 8


async def test_what_is_written_together_counts_together_or_not_at_all(path: Path) -> None:
    """So a job's end that is not on the disk has not been counted either, whatever comes in between."""
    end, broken = ("INSERT INTO meta VALUES (?, '')", ("end",)), [("INSERT INTO nowhere VALUES (?)", [(1,)])]
    with opened(path) as daemon:
        with pytest.raises(sqlite3.OperationalError):
            await daemon.journal.durable(*end, also=broken)
        await daemon.journal.durable(end[0], ("other",), also=[usage.use_of_ended(job())])
    assert sql(path, "SELECT key FROM meta WHERE value = ''") == [("other",)] and len(read(path)) == 1
