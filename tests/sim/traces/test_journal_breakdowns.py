"""Breakdowns of recorded jobs: what they would take alone, and what is said of those of which less is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from carpool.daemon.journal import schema
from carpool.daemon.journal.breakdowns import BreakdownRow, breakdown_statement
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.traces import read_journal, read_trace, write_trace
from tests.sim.traces.test_foreign import make_journal

S = 1_000_000
#: 4 s of start-up, of which 1 s in its first turn, 10 iterations of 2 s, 3 s on the host between them, 2 s of end.
JOB = {"submitted_us": 5 * S, "started_us": 5 * S, "ended_us": 35 * S, "device_us": 23 * S, "iterations": 10}
PLAIN = BreakdownRow(
    job=1,
    startup_us=3 * S,
    startup_turn_us=3 * S,
    startup_iterations=1,
    startup_cpu_us=5 * S,
    startup_delay_us=0,
    work_delay_us=0,
    host_us=3 * S,
    end_us=2 * S,
    end_turn_us=2 * S,
    end_cpu_us=1 * S,
    end_delay_us=0,
    alone_us=18 * S,
    alone_iterations=9,
    beside_us=0,
    beside_iterations=0,
)


def journal(home: Path, rows: Sequence[Mapping[str, Any]], breakdowns: Sequence[BreakdownRow]) -> Path:
    path = make_journal(home, [{**JOB, **row} for row in rows])
    with closing(schema.open_journal(path)) as connection:
        for row in breakdowns:
            connection.executemany(*breakdown_statement(row))
    return path


def only(home: Path, **changes: Any) -> tuple[TraceJob, list[str]]:
    (job,), notes = read_journal(journal(home, [{}], [PLAIN._replace(**changes)]))
    return job, notes


def test_a_job_alone_takes_the_sum_of_its_parts(tmp_path: Path) -> None:
    """Of the first turn all is start-up but one iteration; the turn that it kept while it ended is its end."""
    job, notes = only(tmp_path)
    assert (job.startup_us, job.iterations, job.iteration_us, job.host_us) == (4 * S, 10, 2 * S, 3 * S // 10)
    assert (job.end_us, job.startup_cpu_us, job.end_cpu_us) == (2 * S, 3 * S, 1 * S)
    assert job.duration_us == PLAIN.startup_us + JOB["device_us"] + PLAIN.host_us + PLAIN.end_us - PLAIN.end_turn_us
    assert notes == ["device time is that of a job alone: the pace of 1 is known, 0 count as recorded"]


def test_iterations_beside_others_count_as_those_alone(tmp_path: Path) -> None:
    """6 of 9 took 3 s each."""
    slowed = {"alone_us": 6 * S, "alone_iterations": 3, "beside_us": 18 * S, "beside_iterations": 6}
    home = journal(tmp_path, [{"device_us": 29 * S}], [PLAIN._replace(**slowed)])
    (job,), _ = read_journal(home)
    assert (job.iteration_us, job.startup_us, job.duration_us) == (2 * S, 4 * S, 29 * S)


def test_a_job_that_was_never_slowed_is_not_lengthened(tmp_path: Path) -> None:
    job, _ = only(tmp_path, alone_us=9 * S, alone_iterations=3, beside_us=9 * S, beside_iterations=6)
    assert job.iteration_us == 2 * S, "9 iterations took 18 s, whatever three of them alone say"


@pytest.mark.parametrize(("delay_s", "each_s"), [(0, 4), (9, 3), (18, 2)])
def test_waiting_for_a_processor_is_no_work(tmp_path: Path, delay_s: int, each_s: int) -> None:
    """Also of a job that has always computed beside others."""
    beside = {"alone_us": 0, "alone_iterations": 0, "beside_us": 36 * S, "beside_iterations": 9}
    home = journal(
        tmp_path, [{"device_us": 42 * S}], [PLAIN._replace(startup_turn_us=4 * S, work_delay_us=delay_s * S, **beside)]
    )
    (job,), _ = read_journal(home)
    assert (job.iteration_us, job.startup_us) == (each_s * S, (3 + 4 - each_s) * S)


@pytest.mark.parametrize(("delay_s", "later_s"), [(2, 18), (15, 9)])
def test_the_larger_of_two_reasons_counts(tmp_path: Path, delay_s: int, later_s: int) -> None:
    """9 iterations took 24 s: 6 s for others by the pace alone, and some for want of a processor."""
    slowed = {"alone_us": 6 * S, "alone_iterations": 3, "beside_us": 18 * S, "beside_iterations": 6}
    home = journal(tmp_path, [{"device_us": 29 * S}], [PLAIN._replace(work_delay_us=delay_s * S, **slowed)])
    (job,), _ = read_journal(home)
    assert job.iteration_us == later_s * S // 9


def test_a_job_whose_iterations_were_all_seen_at_once_counts_as_recorded(tmp_path: Path) -> None:
    nothing = {"startup_iterations": 10, "startup_turn_us": 21 * S, "alone_us": 0, "alone_iterations": 0}
    job, notes = only(tmp_path, **nothing)
    assert (job.startup_us, job.iterations, job.iteration_us) == (3 * S, 10, 21 * S // 10)
    assert notes == ["device time is that of a job alone: the pace of 0 is known, 1 counts as recorded"]


def test_waiting_for_a_processor_is_no_part_of_start_up_and_end(tmp_path: Path) -> None:
    job, _ = only(tmp_path, startup_delay_us=1_500_000, end_delay_us=S)
    assert (job.startup_us, job.end_us, job.iteration_us) == (2_500_000, S, 2 * S)


def test_a_pace_alone_comes_from_other_runs_of_the_command(tmp_path: Path) -> None:
    """The second job has always computed beside others, the third runs another command."""
    beside = {"alone_us": 0, "alone_iterations": 0, "beside_us": 36 * S, "beside_iterations": 9}
    breakdowns = [PLAIN, PLAIN._replace(job=2, **beside), PLAIN._replace(job=3, **beside)]
    slow = {"device_us": 41 * S}
    home = journal(tmp_path, [{}, slow, {**slow, "spec": '{"argv": ["y"]}'}], breakdowns)
    jobs, notes = read_journal(home)
    assert [job.iteration_us for job in jobs] == [2 * S, 2 * S, 39 * S // 10]
    assert notes == ["device time is that of a job alone: the pace of 2 is known, 1 counts as recorded"]


def test_of_jobs_of_an_earlier_carpool_less_is_known(tmp_path: Path) -> None:
    """And of those that an earlier daemon has started."""
    unknown = dict.fromkeys(("startup_us", "startup_cpu_us", "startup_delay_us", "work_delay_us", "host_us"))
    adopted = PLAIN._replace(job=2, **unknown)
    jobs, notes = read_journal(journal(tmp_path, [{}, {}], [adopted]))
    assert [(job.duration_us, job.end_us, job.startup_cpu_us) for job in jobs] == [
        (23 * S, 0, None),
        (23 * S, 2 * S, None),
    ]
    assert notes == [
        "device time is that of a job alone: the pace of 1 is known, 1 counts as recorded",
        "of 2 jobs only start-up and turn time are known, and other time on the host counts as none",
    ]


def test_a_journal_without_the_table(tmp_path: Path) -> None:
    path = journal(tmp_path, [{}], [])
    with closing(schema.open_journal(path)) as connection:
        connection.execute("DROP TABLE breakdowns")
    (job,), _ = read_journal(path)
    assert (job.duration_us, job.iteration_us) == (23 * S, 2_300_000)


@pytest.mark.parametrize("iterations", [0, 1, 10])
@pytest.mark.parametrize("device_us", [0, 1, 7 * S])
@pytest.mark.parametrize("delay_us", [0, 50 * S])
def test_whatever_is_recorded_makes_a_job(tmp_path: Path, iterations: int, device_us: int, delay_us: int) -> None:
    row = {"iterations": iterations, "device_us": device_us}
    found = PLAIN._replace(startup_delay_us=delay_us, end_delay_us=delay_us)
    jobs, _ = read_journal(journal(tmp_path, [row], [found]))
    write_trace(jobs, tmp_path / "trace.csv")
    assert read_trace(tmp_path / "trace.csv") == jobs
    assert jobs[0].startup_us >= 0 and jobs[0].end_us < jobs[0].duration_us
