"""Predicted and real completion times, compared."""

from __future__ import annotations

from carpool.core.model import Micros, Outcome
from carpool.sim.model.result import JobResult
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.comparison import compare

S = 1_000_000


def result(number: int, jct_us: Micros, outcome: Outcome = Outcome.SUCCEEDED) -> JobResult:
    return JobResult(TraceJob(str(number), 5 * S, 1, model="n"), outcome, 5 * S, 5 * S + jct_us, 0)


def test_errors_are_shares_of_the_real_times() -> None:
    """Predicted 10, 30 and 50 s; really 10, 20 and 100 s."""
    results = [result(1, 10 * S), result(2, 30 * S), result(3, 50 * S)]
    found = compare(results, {"1": 10 * S, "2": 20 * S, "3": 100 * S})
    assert [job.error_ppm for job in found.jobs] == [0, 500_000, 500_000]
    assert (found.predicted_mean_s, found.real_mean_s) == (30.0, 130 / 3)
    assert found.mean_error == 40 / 130 and found.error(50) == 0.5 and found.error(0) == 0.0
    assert [job.id for job in found.worst(2)] == ["2", "3"] and len(found.worst(9)) == 3


def test_jobs_without_a_real_time_and_refused_ones_are_left_out() -> None:
    results = [result(1, S), result(2, S), result(3, S, Outcome.REFUSED)]
    (job,) = compare(results, {"1": 2 * S, "3": S, "9": S}).jobs
    assert (job.id, job.name, job.predicted_us, job.real_us) == ("1", "n", S, 2 * S)


def test_a_job_that_took_no_time_is_no_division_by_zero() -> None:
    (job,) = compare([result(1, 0)], {"1": 0}).jobs
    assert (job.real_us, job.error_ppm) == (1, 1_000_000)
