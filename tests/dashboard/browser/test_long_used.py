"""The page of a daemon that has been used for long: 10,000 jobs in the journal, and a million rows of events."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.daemon.daemon_harness import Daemon
from tests.dashboard.browser.browser_rig import BrowserRig, first_paint_and_rows, lacking, rig_of

JOBS, EVENTS = 10_000, 1_000_000
#: Every event of one job again for each further one.
EVENTS_SQL = """WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
INSERT INTO events (seq, wall_us, now_us, kind, job, ring, data)
SELECT :seq + (n - 1) * :each + place, wall_us, now_us, kind, :job + n, 0, json_set(data, '$.job', :job + n)
FROM numbers CROSS JOIN (SELECT *, row_number() OVER (ORDER BY seq) AS place FROM events WHERE job = :job)"""
COPY_SQL = """WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
INSERT INTO {table} ({columns}) SELECT {values} FROM numbers CROSS JOIN {table} WHERE {key} = :job"""


def copy(connection: sqlite3.Connection, table: str, key: str, job: int, first: int, last: int) -> None:
    """The rows of ``job`` again for the jobs ``job + first`` to ``job + last``."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ["n + :job" if column == key else column for column in columns]
    sql = COPY_SQL.format(table=table, columns=", ".join(columns), values=", ".join(values), key=key)
    connection.execute(sql, {"job": job, "first": first, "last": last})


def use_for_long(journal: Path, job: int) -> int:
    """Fill the journal of a stopped daemon; the number of the newest job."""
    with closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        (each,) = connection.execute("SELECT count(*) FROM events WHERE job = ?", (job,)).fetchone()
        (seq,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        last = EVENTS // each
        connection.execute(EVENTS_SQL, {"last": last, "seq": seq, "each": each, "job": job})
        for table, key in (("jobs", "id"), ("attempts", "job"), ("placements", "job")):
            copy(connection, table, key, job, last - JOBS + 3, last)  # with the two that there are so many
        connection.execute("COMMIT")
    return job + last


@pytest.mark.nightly(
    "a million rows take their time", stays="tests/dashboard/browser/test_many.py::test_ten_thousand_jobs"
)
def test_a_million_rows(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    if why := lacking():
        pytest.skip(why)
    daemon = Daemon(tmp_path / "home", "--device", "host:256MiB").started()
    daemon.submit("true", hold=True)  # older than all, and listed without them
    job = daemon.submit("true", name="one of many")
    daemon.wait(job)
    daemon.terminate()
    newest = use_for_long(daemon.home / "journal.sqlite", job)
    began = time.monotonic()
    daemon.started()
    record_property("start_ms", round((time.monotonic() - began) * 1000))
    with rig_of(daemon) as rig:
        look_at(rig, newest, record_property)
        rig.close_pages()
    assert "Traceback" not in daemon.log(), daemon.log()


def look_at(rig: BrowserRig, newest: int, record_property: Callable[[str, object], None]) -> None:
    watched = rig.open("jobs")
    page = watched.page
    page.locator(f"[data-job='{newest}']").wait_for()
    paint, rows = first_paint_and_rows(page)
    record_property("million_paint_ms", round(paint))
    record_property("million_rows_ms", round(rows))
    shown = page.get_by_role("status")
    known = int(shown.inner_text().split()[0])
    assert "there are older ones" in shown.inner_text()
    for loaded in (known + 500, known + 1000):
        page.get_by_role("button", name="Load older jobs").click()
        shown.get_by_text(f"{loaded} of {loaded} shown").wait_for()
    page.get_by_role("table", name="Jobs").evaluate("table => { table.scrollTop = table.scrollHeight }")
    oldest = newest - (loaded - 1) + 1
    page.locator(f"[data-job='{oldest}']").get_by_role("link").first.click()
    page.get_by_role("heading", name=f"{oldest} one of many").wait_for()
    page.get_by_text("succeeded").first.wait_for()
    watched.show("timeline")
    page.locator("canvas").first.wait_for()
    assert not watched.complaints, watched.complaints
