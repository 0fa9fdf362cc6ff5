"""The figures of a simulation, on results that were worked out by hand."""

from __future__ import annotations

import random

import numpy
import pytest

from carpool.core.model import GIB, Outcome
from carpool.core.stats import percentile_s
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.summary import summarize
from tests.sim.made_results import SECOND, ended, result


def test_three_jobs_one_after_the_other() -> None:
    jobs = [ended("a", 0, 0, 4), ended("b", 1, 4, 6, preemptions=2), ended("c", 2, 6, 12)]
    summary = summarize(result(*jobs, devices=2))
    assert summary.avg_jct_s == pytest.approx((4 + 5 + 10) / 3)
    assert summary.median_jct_s == 5
    assert summary.avg_queueing_s == pytest.approx((0 + 3 + 4) / 3)
    assert summary.avg_waiting_s == pytest.approx((0 + 3 + 4) / 3)
    assert summary.makespan_s == 12
    assert summary.service_s == 12
    assert summary.utilization == 0.5  # 12 s of one device, of 2 × 12 s
    assert summary.preemptions == 2
    assert summary.jobs_per_second_simulated == 6
    assert (summary.policy, summary.allocation, summary.devices, summary.events) == ("srtf", "devices", 2, 42)


def test_what_was_moved() -> None:
    """Refused jobs have moved nothing; failed ones count."""
    moved = {"offloads": 2, "moved_bytes": 3 * GIB, "moving_us": 500_000}
    failed = ended("f", 0, 5, 10, outcome=Outcome.FAILED, offloads=1, moved_bytes=GIB // 2, moving_us=SECOND)
    summary = summarize(result(ended("a", 0, 0, 5, **moved), failed, devices=3))
    assert (summary.offloads, summary.moved_gib, summary.moving_s, summary.moving) == (3, 3.5, 1.5, 0.05)


def test_refused_jobs_count_nowhere_and_failed_ones_not_for_jct() -> None:
    refused = ended("r", 0, None, 0, outcome=Outcome.REFUSED)
    failed = ended("f", 5, 20, 90, outcome=Outcome.FAILED)
    summary = summarize(result(refused, ended("a", 10, 10, 20), failed))
    assert (summary.jobs, summary.succeeded, summary.failed, summary.refused) == (3, 1, 1, 1)
    assert summary.avg_jct_s == summary.p99_jct_s == 10
    assert summary.makespan_s == 85
    assert summary.service_s == 80


def test_nothing_to_speak_of_is_none() -> None:
    for made in (result(), result(ended("r", 3, None, 3, outcome=Outcome.REFUSED))):
        summary = summarize(made)
        assert summary.avg_jct_s is summary.median_jct_s is summary.avg_queueing_s is summary.deadlines_missed is None
        assert summary.makespan_s == summary.utilization == 0


def test_a_deadline_counts_from_the_submission_and_only_success_meets_it() -> None:
    def job(name: str, deadline: int) -> TraceJob:
        return TraceJob(name, 10 * SECOND, SECOND, deadline_us=deadline * SECOND)

    jobs = [
        ended("", 10, 12, 15, job=job("in time", 5)),
        ended("", 10, 12, 16, job=job("late", 5)),
        ended("", 10, 12, 13, job=job("failed", 5), outcome=Outcome.FAILED),
        ended("", 10, None, 10, job=job("refused", 5), outcome=Outcome.REFUSED),
        ended("no deadline", 10, 12, 99),
    ]
    assert summarize(result(*jobs)).deadlines_missed == 3


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100, 101])
@pytest.mark.parametrize("percent", [0, 50, 95, 99, 100])
def test_percentiles_are_those_of_numpy(count: int, percent: int) -> None:
    values = sorted(random.Random(count).randrange(10**9) for _ in range(count))
    assert percentile_s(values, percent) == pytest.approx(numpy.percentile(values, percent) / SECOND, rel=1e-12)


def test_sums_are_exact_where_floats_are_not() -> None:
    """2**60 us and 1 us: a sum of floats would lose the one."""
    jobs = [ended("", 0, 0, 1), ended("", 0, 0, 1)]
    jobs[0].ended_us, jobs[1].ended_us = 1 << 60, 1
    assert summarize(result(*jobs)).avg_jct_s == ((1 << 60) + 1) / (2 * SECOND)
