"""Means and ranges of the figures of many simulations."""

from __future__ import annotations

import dataclasses
import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.sim.results.summary import summarize
from carpool.sim.study.figures import FigureRange, StudyRow, means, range_of, ranges, rows_of_study
from carpool.sim.study.simulations import Combination, StudyRun
from tests.sim.made_results import ended, recorded

SUMMARY = summarize(recorded(ended("a", 0, 0, 3)))


def run(seed: int, policy: str = "srtf", load: float | None = None, **changes: object) -> StudyRun:
    return StudyRun(Combination(policy, load, seed), dataclasses.replace(SUMMARY, **changes))


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=30))
def test_ranges_are_percentiles_between_neighbours(values: list[float]) -> None:
    mean, low, high = range_of(values)
    parts = statistics.quantiles(values, n=20, method="inclusive")
    assert (low, high) == pytest.approx((parts[0], parts[-1]))
    assert min(values) <= low <= high <= max(values)
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-6)


def test_equal_figures_stay_what_they_are() -> None:
    assert range_of([0.07, 0.07]) == (0.07, 0.07, 0.07)
    assert isinstance(range_of([7, 7]).mean, int)


def test_each_number_of_a_summary_has_a_range() -> None:
    row = StudyRow("srtf", None, [run(0, avg_jct_s=2.0, preemptions=1), run(1, avg_jct_s=4.0, preemptions=2)])
    assert row.figures["avg_jct_s"] == FigureRange(3.0, 2.1, 3.9)
    assert row.figures["preemptions"].mean == 1.5
    assert (row.figures["policy"], row.figures["services"]) == ("srtf", None)
    numbers = {name for name, value in dataclasses.asdict(SUMMARY).items() if isinstance(value, (int, float))}
    assert ranges(row.figures).keys() == numbers
    assert means(row.figures).keys() == dataclasses.asdict(SUMMARY).keys()
    json.dumps([means(row.figures), ranges(row.figures)])


def test_figures_of_parts_and_figures_that_some_have_not() -> None:
    parts = [
        {"all": {"p50_s": 1.0}, "models": ({"model": "a", "missed": None},)},
        {"all": {"p50_s": None}, "models": ({"model": "a", "missed": 3},)},
    ]
    row = StudyRow("srtf", None, [run(seed, services=part) for seed, part in enumerate(parts)])
    services = row.figures["services"]
    assert services["all"]["p50_s"] == FigureRange(1.0, 1.0, 1.0)
    assert services["models"] == [{"model": "a", "missed": FigureRange(3, 3, 3)}]
    assert ranges(row.figures)["services"]["models"] == [{"missed": {"p5": 3, "p95": 3}}]
    assert means(row.figures)["services"]["models"] == [{"model": "a", "missed": 3}]


def test_one_simulation_has_figures_without_ranges() -> None:
    row = StudyRow("srtf", None, [run(0)])
    assert row.figures == dataclasses.asdict(SUMMARY) and "avg_jct_s" not in ranges(row.figures)


def test_failed_runs_are_told_apart() -> None:
    wrong = StudyRun(Combination("srtf", None, 1), error="it is wrong")
    row = StudyRow("srtf", None, [run(0), wrong])
    assert row.failed == [wrong] and row.figures["avg_jct_s"] == FigureRange(*[SUMMARY.avg_jct_s] * 3)
    assert StudyRow("srtf", None, [wrong]).figures == {}


def test_rows_are_by_policy_then_load_in_the_order_of_the_study() -> None:
    every = [Combination(policy, load, seed) for load in (0.5, 1.0) for seed in (0, 1) for policy in ("srtf", "fifo")]
    runs = [run(each.seed or 0, each.policy, each.load) for each in reversed(every)]
    rows = rows_of_study(runs, every)
    assert [(row.policy, row.load) for row in rows] == [("srtf", 0.5), ("srtf", 1.0), ("fifo", 0.5), ("fifo", 1.0)]
    assert {tuple(each.combination.seed for each in row.runs) for row in rows} == {(0, 1)}
