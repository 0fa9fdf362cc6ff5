"""A row that cannot be read is set aside; the daemon starts with all others."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from carpool.daemon.journal.contents import JournalContents, read_contents, read_submissions
from carpool.daemon.journal.models import read_controls
from carpool.daemon.journal.records import read_placement
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import Daemon, Refused, alive
from tests.daemon.failing import WAITS, let_go
from tests.daemon.journal_file import sql

#: One job has succeeded at the second attempt, one has failed; the third has had an attempt, and has not ended.
ROWS = """
INSERT INTO jobs (id, owner, gid, spec, env, submitted_us, phase, device, outcome, started_us, ended_us) VALUES
  (1, 1000, 1000, '{"argv":["python"],"cwd":"/","env":{},"retries":1}', '{}', 1790000000000000, 'ended', 'host0',
   'succeeded', 1790000003000000, 1790000009000000),
  (2, 1000, 1000, '{"argv":["true"],"cwd":"/","env":{}}', '{}', 1790000000000000, 'ended', 'host0',
   'failed', 1790000000000001, 1790000000000002),
  (3, 1000, 1000, '{"argv":["true"],"cwd":"/","env":{}}', '{"TOKEN":"secret"}', 1790000000000000, 'queued', NULL,
   NULL, NULL, NULL);
INSERT INTO attempts VALUES
  (1, 1, 0, 'host0', 1790000001000000, 1790000002000000, 1, NULL, 0, 0, 'exited with code 1', 0, 0, NULL, 'log'),
  (1, 2, 1, 'host0', 1790000003000000, 1790000009000000, 0, NULL, 0, 0, '', 104857600, 52428800, NULL, 'log.2'),
  (3, 1, 0, 'host0', 1790000001000000, 1790000002000000, 1, NULL, 0, 0, 'exited with code 1', 0, 0, NULL, 'log');
INSERT INTO meta VALUES ('use:3', '[2,true]'), ('devices', '[]'), ('settings', '{"policy":"srtf","grace_us":30000}'),
  ('device:host0', '{"quantum_us":7000,"oversubscribe":"off"}');
INSERT INTO placements VALUES (1, '["host0"]', 'null'), (3, '["host0","host1"]', 'null');
INSERT INTO runs VALUES ('key', 1790000009000000, 104857600, 52428800, 100, 50000);
INSERT INTO history VALUES
  (1, 'pace', '["host","key",""]', -1, 0, 1790000009000000, 1790000009000000, CAST('[5000000,100]' AS BLOB));
INSERT INTO models VALUES (1000, 'bert', '{"factory":"a:b","python":"/p","cwd":"/","env":{}}', '{}', 1);
INSERT INTO events VALUES (1, 1, 1, 'Tick', NULL, 1, '{}');
"""


@pytest.fixture
def stored(tmp_path: Path) -> Home:
    """With a journal that has a row in every table."""
    home = Home(tmp_path / "home")
    home.jobs.mkdir(parents=True)
    with closing(open_journal(home.journal)) as connection:
        connection.executescript(ROWS)
    return home


def read(home: Home) -> JournalContents:
    with closing(open_journal(home.journal)) as connection:
        read_controls(connection, ["host0"])
        return read_contents(connection, DirectPrivileges(home), home, 0, None)


def set_aside(home: Home) -> list[tuple[str, int | None, str, dict[str, object]]]:
    rows = sql(home.journal, "SELECT source, job, reason, data FROM quarantine")
    return [(source, job, reason, json.loads(data)) for source, job, reason, data in rows]


def spoil(home: Home, statements: str) -> None:
    with closing(sqlite3.connect(home.journal)) as connection:
        connection.executescript(statements)


def test_a_sound_journal_loses_nothing(stored: Home) -> None:
    contents = read(stored)
    assert [job.id for job in contents.jobs] == [1, 2, 3]
    assert (contents.jobs[2].attempt, contents.jobs[2].was_seated) == (2, True)
    assert (contents.last_job, contents.last_seq, len(contents.models), len(contents.figures[0])) == (3, 1, 1, 1)
    assert (len(contents.history), contents.notice) == (1, "")
    assert set_aside(stored) == []


@pytest.mark.parametrize(
    ("spoiled", "says"),
    [
        ("spec = '{\"argv\":5}'", "argv"),
        ("spec = '{'", "truncated"),
        ('spec = \'{"argv":[],"cwd":"/","env":{},"speed":9}\'', "speed"),
        ('spec = \'{"argv":["true"],"cwd":"/","env":{},"weight":0}\'', "weight is 0"),
        ("spec = CAST(x'22ff22' AS TEXT)", "surrogates"),
        ("spec = x'00'", "spec"),
        ("env = '7'", "Expected `object"),
        ("phase = 'exploded'", "exploded"),
        ("phase = 'ended'", "without an outcome"),
        ("owner = 'root'", "owner"),
        ("owner = -1", "owner"),
        ("submitted_us = 1.5", "submitted_us"),
        ("id = 9223372036854775807", "id"),
        ("id = 0", "id"),
    ],
)
def test_a_job_that_cannot_be_read_is_set_aside(stored: Home, spoiled: str, says: str) -> None:
    spoil(stored, f"UPDATE jobs SET {spoiled} WHERE id = 3")
    contents = read(stored)
    assert [job.id for job in contents.jobs] == [1, 2]
    ((source, _, reason, data),) = set_aside(stored)
    assert source == "jobs" and says in reason and "env" not in data
    assert "1 job of the journal could not be read: carpool doctor --journal" in contents.notice
    assert contents.last_job == 3, "its number is never given again"
    again = read(stored)
    assert ([job.id for job in again.jobs], again.last_job, len(set_aside(stored))) == ([1, 2], 3, 1)


def test_null_where_a_value_is_needed(stored: Home) -> None:
    """Which SQLite refuses to write, and whose check of the file complains about it."""
    spoil(
        stored,
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'spec TEXT NOT NULL', 'spec TEXT')"
        " WHERE name = 'jobs'; PRAGMA writable_schema = RESET; UPDATE jobs SET spec = NULL WHERE id = 3;"
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'spec TEXT', 'spec TEXT NOT NULL')"
        " WHERE name = 'jobs';",
    )
    assert sql(stored.journal, "PRAGMA quick_check") == [("NULL value in jobs.spec",)]
    assert [job.id for job in read(stored).jobs] == [1, 2]


def test_a_job_is_not_lost_for_its_estimate(stored: Home) -> None:
    spoil(stored, "UPDATE jobs SET estimate = '[[[' WHERE id = 3")
    job = read(stored).jobs[2]
    assert (job.id, job.estimate, job.attempt, job.spec.env) == (3, None, 2, {"TOKEN": "secret"})
    ((source, number, _, data),) = set_aside(stored)
    assert (source, number, data["estimate"]) == ("jobs", 3, "[[[")


def test_an_attempt_that_cannot_be_read_counts_all_the_same(stored: Home) -> None:
    spoil(stored, "UPDATE attempts SET reason = x'00' WHERE job = 3")
    job = read(stored).jobs[2]
    assert (job.attempt, job.past[0].core.text) == (2, "its record could not be read")
    assert read(stored).jobs[2].attempt == 2


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("meta", "UPDATE meta SET value = '{' WHERE key = 'settings'"),
        ("meta", "UPDATE meta SET value = '{\"policy\":7}' WHERE key = 'settings'"),
        ("meta", "UPDATE meta SET value = 'x' WHERE key = 'devices'"),
        ("meta", "UPDATE meta SET value = '[1]' WHERE key = 'use:3'"),
        ("meta", "UPDATE meta SET key = 'use:x' WHERE key = 'use:3'"),
        ("meta", "UPDATE meta SET value = '[' WHERE key = 'device:host0'"),
        ("placements", "UPDATE placements SET devices = '[1,2]' WHERE job = 3"),
        ("runs", "UPDATE runs SET iterations = 'many'"),
        ("runs", "UPDATE runs SET ended_us = -5"),
        ("history", "UPDATE history SET value = CAST('[5000000,0]' AS BLOB)"),
        ("history", "UPDATE history SET key = x'ff'"),
        ("models", "UPDATE models SET spec = '{}'"),
        ("models", "UPDATE models SET name = '../x'"),
        ("models", "UPDATE models SET name = CAST(x'ff' AS TEXT)"),
        ("events", "UPDATE events SET seq = 9223372036854775807"),
    ],
)
def test_other_rows_are_set_aside(stored: Home, table: str, statement: str) -> None:
    spoil(stored, statement)
    contents = read(stored)
    assert [job.id for job in contents.jobs] == [1, 2, 3]
    assert [source for source, *_ in set_aside(stored)] == [table]
    assert "1 other row of the journal could not be read" in read(stored).notice


#: SQLite writes NULL into such a table, as a damaged file may have it.
LOOSE = (
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE name = 'history';"
    "PRAGMA writable_schema = RESET;"
)
TIMES = ("step_us", "begin_us", "end_us")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("number", value) for value in ("0", "-1", "9223372036854775807")),
        *((column, value) for column in ("series", "key") for value in ("NULL", "x'00'")),
        *((column, value) for column in ("owner", *TIMES) for value in ("NULL", "'x'", "1.5", "9223372036854775807")),
        *((column, "-5") for column in ("owner", *TIMES)),
        *(("value", value) for value in ("NULL", "'x'", "-5")),
    ],
)
def test_rows_of_history_are_set_aside_at_the_start_and_said_once(
    stored: Home, caplog: pytest.LogCaptureFixture, column: str, value: str
) -> None:
    row = "2, 'device', 'host0', -1, 60000000, 1790000000000000, 1790000060000000, x'00'"
    spoil(stored, f"{LOOSE} INSERT INTO history VALUES ({row}); UPDATE history SET {column} = {value} WHERE number = 2")
    assert [len(read(stored).figures[0]) for _ in range(2)] == [1, 1]
    assert [source for source, *_ in set_aside(stored)] == ["history"]
    assert caplog.text.count("of the journal's table history is set aside") == 1


@pytest.mark.parametrize("value", ["[9007199254740993,100]", "[5000000,9007199254740993]", "[-1,1]"])
def test_figures_of_the_core_have_bounds(stored: Home, value: str) -> None:
    spoil(stored, f"UPDATE history SET value = CAST('{value}' AS BLOB)")
    assert read(stored).figures == ([], []) and len(set_aside(stored)) == 1


def test_a_journal_is_read_whatever_its_directory_is_called(stored: Home, tmp_path: Path) -> None:
    journal = stored.root.rename(tmp_path / "odd #?%41") / stored.journal.name
    assert read_placement(journal, 3) is None
    assert list(read_submissions(journal, [1, 3])) == [1, 3]


def test_a_count_that_is_damaged_is_made_anew(stored: Home) -> None:
    spoil(stored, "UPDATE meta SET value = 'x' WHERE key = 'last_job'")
    assert read(stored).last_job == 3


def test_a_column_that_is_gone_is_no_row_that_is_bad(stored: Home) -> None:
    spoil(stored, "ALTER TABLE jobs DROP COLUMN env")
    with pytest.raises(StartupError, match="no such column: env") as refused:
        read(stored)
    assert "carpool backup" in refused.value.info.hint and not set_aside(stored)


def test_users_are_told(daemon: Daemon) -> None:
    first, second = (daemon.python("pass", ended=True) for _ in range(2))
    daemon.stop()
    sql(daemon.home / "journal.sqlite", "UPDATE jobs SET phase = 'exploded' WHERE id = ?", second)
    daemon.started()
    listed = daemon.get("/v1/jobs")
    assert [job["id"] for job in listed["jobs"]] == [first]
    assert listed["notice"] == "1 job of the journal could not be read: carpool doctor --journal"
    assert "exploded" in daemon.log()
    with pytest.raises(Refused, match="no record of job 2 that can be read") as refused:
        daemon.show(second)
    assert "carpool doctor --journal" in refused.value.hint
    assert daemon.python("pass") == second + 1


@pytest.mark.parametrize("spoil_row", ["UPDATE jobs SET spec = '[' WHERE id = ?", "DELETE FROM jobs WHERE id = ?"])
def test_a_job_that_runs_goes_on_without_its_record(daemon: Daemon, pipe: Path, spoil_row: str) -> None:
    """It keeps its memory and gets its turns, its end is recorded, and who waits for it goes on waiting."""
    steps = ("attach", "grow:p:4194304", "iterate", "say:here", f"listen:{pipe}", "iterate")
    job = daemon.fake(*steps, name="mine", retries=3, line="here")
    waits = daemon.python("pass", after=[job])
    before = daemon.show(job)
    daemon.kill()
    sql(daemon.home / "journal.sqlite", spoil_row, job)
    daemon.started()
    info = daemon.show(job)
    same = ("phase", "pid", "name", "owner", "lane", "persistent_limit")
    assert [info[name] for name in same] == [before[name] for name in same] and alive(info["pid"])
    assert daemon.show(waits)["phase"] == "queued"
    let_go(pipe)
    assert daemon.wait(job)["outcome"] == "succeeded", daemon.log()
    assert daemon.wait(waits)["outcome"] == "succeeded"
    assert daemon.restarted().show(job)["outcome"] == "succeeded"


def test_a_job_without_a_record_is_not_started_again(daemon: Daemon, pipe: Path) -> None:
    """Nobody knows its command.  A job that waits for one that cannot be read is refused, and does not start."""
    job = daemon.submit(sys.executable, "-u", "-c", WAITS, str(pipe), "7", retries=3, line="here")
    blocked = daemon.python("pass", after=[job])
    waits = daemon.python("print('ran')", after=[blocked])
    daemon.kill()
    sql(daemon.home / "journal.sqlite", "UPDATE jobs SET spec = '[' WHERE id IN (?, ?)", job, blocked)
    daemon.started()
    refused = daemon.wait(waits)
    assert (refused["outcome"], refused["reason"]["code"]) == ("refused", "dependency_failed")
    assert f"no record that can be read of job {blocked}" in refused["reason"]["text"]
    let_go(pipe)
    ended = daemon.wait(job)
    assert (ended["outcome"], ended["exit_code"], ended["attempt"]) == ("failed", 7, 1)
