"""The table of jobs: exact seconds, one line per job, readable by others."""

from __future__ import annotations

import csv
from pathlib import Path

from carpool.core.model import Outcome
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.csv_files import JOB_COLUMNS, write_jobs_csv
from tests.sim.made_results import SECOND, ended, result


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_one_line_per_job_in_the_order_of_the_trace(tmp_path: Path) -> None:
    jobs = [ended("b", 5, 7, 9, preemptions=3, attempts=2), ended("a", 1, 1, 2)]
    write_jobs_csv(result(*jobs), tmp_path / "jobs.csv")
    assert (tmp_path / "jobs.csv").read_text().splitlines() == [
        ",".join(JOB_COLUMNS),
        "b,5.000000,1,7.000000,9.000000,4.000000,2.000000,2.000000,2.000000,3,2,0,0.000,0.000000,0,0.000000,succeeded,",
        "a,1.000000,1,1.000000,2.000000,1.000000,0.000000,0.000000,1.000000,0,1,0,0.000,0.000000,0,0.000000,succeeded,",
    ]


def test_seconds_are_exact(tmp_path: Path) -> None:
    """Floats would print 0.30000000000000004 and lose the last digits of 1e17 us."""
    job = TraceJob("x", 100_000, 1)
    long = ended("", 0, 0, 0, job=job, started_us=300_000, service_us=10**17 + 1)
    long.ended_us = 10**17 + 1
    write_jobs_csv(result(long), tmp_path / "jobs.csv")
    (row,) = rows(tmp_path / "jobs.csv")
    assert [row[name] for name in ("submit_s", "start_s", "end_s", "jct_s", "queueing_s")] == [
        *("0.100000", "0.300000", "100000000000.000001", "99999999999.900001", "0.200000")
    ]


def test_a_refused_job_has_a_reason_and_no_completion_time(tmp_path: Path) -> None:
    refused = ended("r", 3, None, 3, outcome=Outcome.REFUSED, reason='needs 9 devices, "all" at once')
    failed = ended("f", 3, 4, 5, outcome=Outcome.FAILED, reason="exit code 1")
    write_jobs_csv(result(refused, failed), tmp_path / "jobs.csv")
    first, second = rows(tmp_path / "jobs.csv")
    assert (first["start_s"], first["jct_s"], first["outcome"]) == ("", "", "refused")
    assert first["reason"] == 'needs 9 devices, "all" at once'
    assert (second["jct_s"], second["outcome"], second["reason"]) == ("2.000000", "failed", "exit code 1")


def test_names_with_commas_quotes_and_lines_survive(tmp_path: Path) -> None:
    names = ['a,"b"', "two\nlines", "carriage\rreturn", "größer", " spaces "]
    jobs = [ended("", 0, 0, 1, job=TraceJob(name, 0, SECOND)) for name in names]
    write_jobs_csv(result(*jobs), tmp_path / "jobs.csv")
    assert [row["job_id"] for row in rows(tmp_path / "jobs.csv")] == names
