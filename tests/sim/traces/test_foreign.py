"""Other people's traces and Carpool's own journal."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from carpool.daemon.journal import schema
from carpool.protocol.paths import Home
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.traces import TraceError, journal, read_journal, read_trace, read_trace_with_notes
from carpool.sim.traces.alibaba import V2020

SECOND = 1_000_000


DAY = "2017-10-07 "


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    """Times are those of a day."""
    detail = [{"ip": f"m{number}", "gpus": [f"gpu{i}" for i in range(count)]} for number, count in enumerate(gpus)]
    return {"start_time": start and DAY + start, "end_time": end and DAY + end, "detail": detail}


def philly_job(name: str, submitted: str, *attempts: dict[str, Any], user: str = "u") -> dict[str, Any]:
    about = {"status": "Pass", "vc": "v", "jobid": name, "submitted_time": submitted, "user": user}
    return {**about, "attempts": list(attempts)}


def write_json(folder: Path, content: Any) -> Path:
    path = folder / "cluster_job_log"
    path.write_text(json.dumps(content))
    return path


def test_philly(tmp_path: Path) -> None:
    twice = attempt("01:12:09", "01:13:09", 8, 4), attempt("02:00:00", "02:01:00", 8)
    unfinished = attempt("01:12:00", None, 1) | {"end_time": "None"}
    jobs = [
        philly_job("later", DAY + "01:11:39", *twice, user="bob"),
        philly_job("first", DAY + "01:11:09", attempt("01:12:00", "01:12:01", 1), user="al"),
        philly_job("never", DAY + "01:00:00", user="bob"),
        philly_job("unfinished", DAY + "01:00:00", unfinished),
        philly_job("no devices", DAY + "01:00:00", attempt("01:12:00", "01:12:01")),
    ]
    jobs, notes = read_trace_with_notes(write_json(tmp_path, jobs))
    assert jobs == [
        TraceJob("first", 0, SECOND, gpus=1, owner=1),
        TraceJob("later", 30 * SECOND, 120 * SECOND, gpus=12, owner=0),
    ]
    assert notes == ["skipped 3 jobs that never ran"]


def test_philly_counts_what_is_known_of_a_retried_job(tmp_path: Path) -> None:
    """An attempt without an end adds nothing; the job's devices are those of the first that has some."""
    attempts = [attempt(None, None), attempt("01:12:00", None, 2), attempt("01:13:00", "01:13:07", 4)]
    (job,) = read_trace(write_json(tmp_path, [philly_job("a", DAY + "01:00:00", *attempts)]))
    assert (job.gpus, job.duration_us) == (2, 7 * SECOND)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": 1}, "this JSON is not a list of jobs"),
        ([], "there is no job to simulate; check"),
        ([philly_job("a", DAY + "01:00:00")], r"there is no job to simulate \(skipped 1 job that never ran\)"),
        ([1], 'job 1: "1" is not a job; check the file'),
        ([philly_job("a", "x", attempt("01:12:00", "01:13:00", 1))], 'job 1: submitted_time is "x", not a time'),
        ([philly_job("a", "", attempt("01:12:00", "01:13:00", 1))], "job 1: jobid or"),
        ([philly_job("a", DAY + "01:00:00", {"start_time": "x"})], 'job 1: start_time is "x"'),
        ([{"attempts": 3}], 'job 1: attempts is "3", not a list'),
        ([{"attempts": [3]}], 'job 1: detail is "None", not a list'),
    ],
)  # fmt: skip
def test_philly_that_is_wrong(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(write_json(tmp_path, content))


def test_json_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text('[\n{"jobid":')
    with pytest.raises(TraceError, match=r"log\.json, line 2: this is not JSON"):
        read_trace(path)


TASKS = """\
j1,tensorflow,1.0,Terminated,1000.0,1040.0,600.0,29.3,50.0,MISC
j2,worker,2.0,Terminated,990.5,1000.0,600.0,29.3,50.0,T4
j3,worker,3.0,Terminated,1001.0,1002.0,600.0,29.3,50.0,T4
j4,worker,3.0,Terminated,1002.0,1003.0,600.0,29.3,200.0,V100
j5,ps,1.0,Terminated,1000.0,1040.0,600.0,29.3,,
j6,worker,1.0,Failed,1000.0,1040.0,600.0,29.3,100.0,T4
j7,worker,1.0,Terminated,1000.0,,600.0,29.3,100.0,T4
j8,worker,1.0,Terminated,,1040.0,600.0,29.3,100.0,T4
j1,tensorflow,1.0,Terminated,1005.0,1006.0,600.0,29.3,100.0,P100
"""


@pytest.mark.parametrize("header", ["", ",".join(V2020) + "\n"], ids=["without a header", "with a header"])
def test_alibaba_2020(tmp_path: Path, header: str) -> None:
    path = tmp_path / "pai_task_table.csv"
    path.write_text(header + TASKS)
    jobs, notes = read_trace_with_notes(path)
    assert [(job.id, job.submit_us, job.duration_us, job.gpus, job.utilization_ppm) for job in jobs] == [
        ("j2/worker", 0, 9_500_000, 1, 1_000_000),
        ("j1/tensorflow", 9_500_000, 40 * SECOND, 1, 500_000),
        ("j3/worker", 10_500_000, SECOND, 2, 750_000),
        ("j4/worker", 11_500_000, SECOND, 6, 1_000_000),
        ("j1/tensorflow#2", 14_500_000, SECOND, 1, 1_000_000),
    ]
    assert notes == [
        "skipped 1 task without a GPU",
        "skipped 1 task that did not end well",
        "skipped 2 tasks without a start and a later end",
    ]


PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,,LS,Running,0,100,0
p1,6000,12288,1,460,,LS,Running,10,100,40
p2,88000,327680,8,1000,V100M16|V100M32,Burstable,Failed,20,30,25
p3,12500,65536,0,0,,LS,Running,20,30,25
p4,8000,30517,1,320,,BE,Pending,20,30,
"""


def test_alibaba_2023(tmp_path: Path) -> None:
    path = tmp_path / "openb_pod_list_default.csv"
    path.write_text(PODS)
    jobs, notes = read_trace_with_notes(path)
    assert jobs == [
        TraceJob("p0", 0, 100 * SECOND),
        TraceJob("p1", 10 * SECOND, 60 * SECOND, utilization_ppm=460_000),
        TraceJob("p2", 20 * SECOND, 5 * SECOND, gpus=8),
    ]
    assert notes == ["skipped 1 pod without a GPU", "skipped 1 pod that never ran"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("a,b,1,Terminated,x,2,3,4,5,T4\n", 'line 1: start_time is "x"; it must be a number, 0 or more, or empty'),
        ("a,b,1,Terminated,1,2,3,4,5,T4\na,b\n", "line 2: there are 2 fields, not 10"),
        (PODS + "p9,1,1,1.5,1,,LS,Running,1,2,1\n", 'line 7: num_gpu is "1.5"; it must be a whole number'),
    ],
)
def test_alibaba_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pai_task_table.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_trace(path, "alibaba")


ROW = {
    "owner": 1000, "gid": 1000, "spec": '{"argv": ["x"], "name": "train", "weight": 50}', "env": "{}", "phase": "ended",
    "outcome": "succeeded", "started_us": 1, "ended_us": 2, "device_us": 0, "iterations": 0, "persistent_bytes": 0,
    "ephemeral_bytes": 0,
}  # fmt: skip


def make_journal(home: Path, rows: Iterable[dict[str, Any]], version: int | None = schema.SCHEMA) -> Path:
    """By the daemon's own hands, so that a change of its tables is noticed here."""
    path = Home(home).journal
    connection = schema.open_journal(path)
    for number, changes in enumerate(rows, start=1):
        row = {"id": number, **ROW, **changes}
        names = ", ".join(row)
        connection.execute(f"INSERT INTO jobs ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(version),))
    connection.close()
    return path


def test_a_journal(tmp_path: Path) -> None:
    path = make_journal(
        tmp_path,
        [
            {"submitted_us": 5000, "device_us": 1003, "iterations": 10, "persistent_bytes": 7, "ephemeral_bytes": 8},
            {
                "submitted_us": 4000,
                "device_us": 500,
                "outcome": "failed",
                "owner": 2,
                "spec": '{"argv": [], "gpus": 2}',
            },
            {"submitted_us": 6000, "started_us": None},
            {"submitted_us": 6000, "phase": "running", "ended_us": None},
            {"submitted_us": 6000, "phase": "queued", "ended_us": None, "started_us": None},
            {"submitted_us": 7000, "device_us": 0},
        ],
    )
    jobs, notes = read_journal(tmp_path)
    assert jobs == [
        TraceJob("2", 0, 500, gpus=2, iterations=1, iteration_us=500, owner=2),
        TraceJob("1", 1000, 1003, iterations=10, iteration_us=100, persistent=7, ephemeral=8, model="train", weight=50,
                 owner=1000),
        TraceJob("6", 3000, 1, iterations=1, iteration_us=1, model="train", weight=50, owner=1000),
    ]  # fmt: skip
    assert notes == [
        "device time is that of a job alone: the pace of 0 is known, 3 count as recorded",
        "of 3 jobs only start-up and turn time are known, and other time on the host counts as none",
        "skipped 1 job that never ran",
        "skipped 2 jobs that have not ended",
    ]
    assert read_journal(path) == (jobs, notes)
    later, _ = read_journal(path, since_us=5000)
    assert [job.id for job in later] == ["1", "6"] and later[0].submit_us == 0


def test_start_up_comes_from_the_events(tmp_path: Path) -> None:
    """From the start to the first attachment; nothing where the clock began anew in between."""
    facts = {"submitted_us": 1, "started_us": 1000, "ended_us": 9000, "device_us": 400, "iterations": 4}
    path = make_journal(tmp_path, [facts, facts, facts])
    events = [
        (1, "StartJob", 500),
        (1, "Attached", 2500),
        (1, "Attached", 3000),
        (2, "StartJob", 500),
        (3, "StartJob", 90_000),
    ]
    with closing(schema.open_journal(path)) as connection:
        for number, (job, kind, now) in enumerate([*events, (3, "Attached", 7)], 1):
            connection.execute("INSERT INTO events VALUES (?, 0, ?, ?, ?, 0, '')", (number, now, kind, job))
    jobs, _ = read_journal(path)
    assert [(job.startup_us, job.duration_us, job.iteration_us) for job in jobs] == [
        (2000, 2400, 100), (0, 400, 100), (0, 400, 100)
    ]  # fmt: skip


def test_reading_a_journal_leaves_nothing_behind_also_while_it_is_in_use(tmp_path: Path) -> None:
    path = make_journal(tmp_path, [{"submitted_us": 1}])
    before = path.read_bytes()
    read_journal(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before
    with closing(schema.open_journal(path)) as connection:
        connection.execute("UPDATE jobs SET device_us = 77")
        assert read_journal(path)[0][0].duration_us == 77


def test_the_journals_name_and_version_are_the_daemons() -> None:
    """The simulator imports neither, so they are written down twice."""
    assert Path("home") / journal.FILE == Home(Path("home")).journal
    assert (journal.VERSION, "version") == (schema.SCHEMA, schema.VERSION_KEY)


def test_journals_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"journal\.sqlite: there is no journal"):
        read_journal(tmp_path)
    (tmp_path / "text").write_text("no database, only text that is longer than a header of SQLite is" * 30)
    with pytest.raises(TraceError, match="this is not a journal of Carpool"):
        read_journal(tmp_path / "text")
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE cats (name)")
    with pytest.raises(TraceError, match="this is not a journal of Carpool"):
        read_journal(tmp_path / "other")
    make_journal(tmp_path, [], version=schema.SCHEMA)
    with pytest.raises(TraceError, match="no job in it has ended; wait until one has"):
        read_journal(tmp_path)
    (tmp_path / "newer").mkdir()
    make_journal(tmp_path / "newer", [{"submitted_us": 1}], version=99)
    with pytest.raises(TraceError, match="a newer Carpool has written it"):
        read_journal(tmp_path / "newer")
    (tmp_path / "unreleased").mkdir()
    make_journal(tmp_path / "unreleased", [{"submitted_us": 1}], version=None)
    with pytest.raises(TraceError, match="one of an unreleased Carpool"):
        read_journal(tmp_path / "unreleased")
