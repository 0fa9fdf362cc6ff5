"""Replicas: drawn from a spread, the same for a seed, and as far apart as the jobs themselves say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.sim.model.replicas import FEWEST, Spread, counted_pace_us, drawn, measured_spreads, relative_deviation
from carpool.sim.model.trace_job import ASSUMED_ITERATION_US, TraceJob

SECOND = 1_000_000


def job(name: str, startup_us: int, iteration_us: int, count: int = 100, host_us: int = 0) -> TraceJob:
    duration = startup_us + count * (iteration_us + host_us)
    return TraceJob(
        name, 0, duration, iterations=count, iteration_us=iteration_us, host_us=host_us, model=name.partition("-")[0]
    )


def deviation(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value / mean - 1) ** 2 for value in values) / (len(values) - 1))


def test_a_command_that_ran_often_has_its_own_spread() -> None:
    startups, paces = [2 * SECOND, 3 * SECOND, 4 * SECOND], [10_000, 11_000, 12_000]
    same = [job(f"train-{n}", *times) for n, times in enumerate(zip(startups, paces, strict=True))]
    other = [job("other", 9 * SECOND, 500_000)]
    *own, strange = measured_spreads([*same, *other])
    expected = Spread(deviation([*map(float, startups)]), deviation([*map(float, paces)]))
    assert own == [pytest.approx(expected)] * FEWEST
    assert strange.pace == pytest.approx(expected.pace), "that of all commands that ran more than once"
    assert strange.startup == pytest.approx(deviation([*map(float, startups), 9e6])), "that of all start-ups"


def test_owners_do_not_share_a_name() -> None:
    mine = [job("train-1", SECOND, 10_000), job("train-2", SECOND, 10_000)]
    theirs = [replace(each, owner=1, iteration_us=99_000) for each in mine]
    assert {spread.pace for spread in measured_spreads([*mine, *theirs])} == {0.0}


def test_what_was_measured_once_or_only_assumed_has_no_spread() -> None:
    """A job of 0.73 s that counts no iterations gets 7 of them, of 104,285 us; the remainder is no start-up."""
    assumed = TraceJob("a", 0, 730_000, iterations=7, iteration_us=104_285)
    assert counted_pace_us(assumed) == 0 and counted_pace_us(replace(assumed, iterations=None)) == 0
    assert counted_pace_us(job("x", 0, 104_285)) == 104_285
    assert counted_pace_us(job("x", 0, 2 * ASSUMED_ITERATION_US, host_us=7)) == 2 * ASSUMED_ITERATION_US + 7
    assert measured_spreads([assumed, replace(assumed, id="b", duration_us=730_005)]) == [Spread()] * 2
    assert measured_spreads([job("once", SECOND, 10_000)]) == [Spread()]
    assert measured_spreads([]) == []


def test_relative_deviation_is_within_groups() -> None:
    assert relative_deviation([[1.0, 1.0], [100.0, 100.0]]) == 0
    assert relative_deviation([[9.0, 11.0], [900.0, 1100.0]]) == pytest.approx(math.sqrt(0.04 / 2))
    assert relative_deviation([[5.0], []]) == 0


jobs = st.lists(
    st.builds(job, st.just("x"), st.integers(0, 10**8), st.integers(1, 10**6), st.integers(1, 500)), max_size=9
)
spreads = st.builds(Spread, st.floats(0, 1), st.floats(0, 1))


@given(jobs, spreads, st.integers(0, 100))
def test_a_replica_is_a_valid_trace_of_the_same_jobs(trace: list[TraceJob], spread: Spread, seed: int) -> None:
    replica = drawn(trace, [spread] * len(trace), seed)
    assert replica == drawn(trace, [spread] * len(trace), seed)
    for before, after in zip(trace, replica, strict=True):
        assert (after.id, after.submit_us, after.iterations) == (before.id, before.submit_us, before.iterations)
        assert after.startup_us >= 0 and after.iteration_us is not None and after.iteration_us > 0


def test_a_longer_start_demands_as_many_cores() -> None:
    """The processor time of start-up is drawn with its length; the end and its processor time stay."""
    begins = replace(job("x", SECOND, 10_000), startup_cpu_us=SECOND // 2, end_us=7, end_cpu_us=3)
    (other,) = drawn([replace(begins, duration_us=begins.duration_us + 7)], [Spread(0.5, 0.0)], 1)
    assert other.startup_us != SECOND
    assert other.startup_cores_ppm == pytest.approx(500_000, abs=2)
    assert (other.end_us, other.end_cpu_us) == (7, 3)


@given(jobs, st.integers(0, 100))
def test_without_a_spread_a_replica_is_the_trace(trace: list[TraceJob], seed: int) -> None:
    assert drawn(trace, [Spread()] * len(trace), seed) == trace


def test_times_are_drawn_around_their_mean_with_their_spread() -> None:
    alone = TraceJob("plain", 0, 10 * SECOND)
    both = [job("x", 10 * SECOND, 10_000, host_us=5_000), alone]
    many = [drawn(both, [Spread(0.2, 0.1)] * 2, seed) for seed in range(1500)]
    for values, mean, share in (
        ([first.startup_us / SECOND for first, _ in many], 10, 0.2),
        ([sum(first.cycle_us) for first, _ in many], 15_000, 0.1),
        ([second.duration_us / SECOND for _, second in many], 10, 0.1),
    ):
        assert sum(values) / len(values) == pytest.approx(mean, rel=0.02)
        assert deviation([*map(float, values)]) == pytest.approx(share, rel=0.1)
