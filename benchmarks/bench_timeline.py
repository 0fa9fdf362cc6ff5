"""``carpool timeline`` of a journal with a million events, as a daemon keeps them: lives of jobs, and the newest turns.

Some seconds of two jobs that take turns, while others come and end, are written again and again with later numbers and
times, the jobs that ended with ids of their own.  Of turns only those of the newest 200,000 numbers are kept.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.figures import Figure, median_figure, rounds_of
from benchmarks.jobs import argv, environment, submit
from carpool.daemon.journal.events import RING_ROWS
from tools.demo.session import Session

EVENTS, SHORT_JOBS = 1_000_000, 60
SECONDS, BYTES = 10.0, 200e6
DEVICES = ["host:256MiB"]
#: The numbers of jobs that are not `one` or `other` grow with each copy.
AGAIN = """WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :times)
INSERT INTO events (seq, wall_us, now_us, kind, job, ring, data)
SELECT seq + n * :count, wall_us + n * :span, now_us + n * :span, kind,
  CASE WHEN job > 2 THEN job + n * :jobs ELSE job END, ring,
  CASE WHEN job > 2 THEN json_set(data, '$.job', job + n * :jobs) ELSE data END
FROM numbers CROSS JOIN (SELECT * FROM events WHERE seq > :first AND seq <= :last)
WHERE ring = 0 OR n > :times - :ring_copies"""


def run(quick: bool) -> list[Figure]:
    events, runs = (50_000, 1) if quick else (EVENTS, rounds_of(3))
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        first, last = _recorded(home)
        there = _repeat(home / "journal.sqlite", first, last, events)
        with Session(home, DEVICES, "fair"):
            found = [_written(home, Path(directory) / "out.json") for _ in range(runs)]
    about, detail = f"{events:,} events, Chrome's JSON", {"slices": found[0][2], "events": there}
    seconds, sizes = [each[0] for each in found], [each[1] for each in found]
    return [
        median_figure("timeline", f"{about}: time", "s", seconds, target=SECONDS, detail=detail),
        median_figure("timeline", f"{about}: most memory of carpool timeline", "B", sizes, target=BYTES),
    ]


def _recorded(home: Path) -> tuple[int, int]:
    """The number before the first event that is repeated, and that of the last."""
    with Session(home, DEVICES, "fair") as client:
        for name in ("one", "other"):
            submit(client, argv("scripted.py"), name=name, iterations=100_000)
        while sum(job.iterations > 0 for job in client.jobs(("running",))) < 2:
            time.sleep(0.1)
        first = max(event.seq for event in client.events())
        for job in [submit(client, argv("scripted.py", 3), name=f"short {n}") for n in range(SHORT_JOBS)]:
            client.wait(job, 120)
        return first, max(event.seq for event in client.events())


def _repeat(journal: Path, first: int, last: int, events: int) -> dict[str, int]:
    """How many events there are then, by whether they are of turns."""
    count, inside = last - first, "seq > :first AND seq <= :last"
    values = {"first": first, "last": last, "count": count, "jobs": SHORT_JOBS}
    with closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        begin, end, rings = connection.execute(
            f"SELECT min(now_us), max(now_us), sum(ring) FROM events WHERE {inside}", values
        ).fetchone()
        connection.execute("DELETE FROM events WHERE seq > :last", values)
        copies = min(RING_ROWS, events // 4) // count
        times = (events - copies * rings) // (count - rings)
        values |= {"span": end - begin + 1000, "ring_copies": copies, "times": times}
        connection.execute(AGAIN, values)
        rows = connection.execute("SELECT ring, count(*) FROM events GROUP BY ring")
        return {"of turns" if ring else "others": number for ring, number in rows}


def _written(home: Path, output: Path) -> tuple[float, float, int]:
    """Seconds, the process's most memory in bytes, and the number of slices."""
    code = "from carpool.cli.main import main; main()"
    command = [sys.executable, "-c", code, "timeline", "--json", "-o", str(output)]
    begun = time.perf_counter()
    with subprocess.Popen(command, env=environment() | {"CARPOOL_HOME": str(home)}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"carpool timeline ended with status {process.returncode}")
    return time.perf_counter() - begun, used.ru_maxrss * 1024.0, answer["slices"]
