"""Jobs that are denied memory: at the right instant, started again by the core, and never forgotten."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.core import commands
from carpool.core.model import GIB, MIB, Micros, Outcome, Oversubscribe, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import JobResult
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.summary import summarize
from tests.examples import examples
from tests.sim.made_results import check_memory, recording

SECOND = 1_000_000
PLACEMENTS = ("exclusive", "round-robin", "first-fit", "best-fit", "magm", "lug")
#: As a driver's allocator does it: what does not fit at this moment fails, and nobody's memory is moved.
REFUSING = Settings(policy="pack", refuse_growth=1, warm_window_us=0)


def job(name: str, at: float, takes: float, gib: float, **more: object) -> TraceJob:
    made = TraceJob(name, round(at * SECOND), round(takes * SECOND), persistent=round(gib * GIB))
    return replace(made, **more)  # type: ignore[arg-type]


def options(**more: object) -> Options:
    made = Options(1, REFUSING, 10 * GIB, oversubscribe=Oversubscribe.OFF, declare_memory=False, record=True)
    return replace(made, **more)  # type: ignore[arg-type]


def times(one: JobResult) -> tuple[float, float]:
    return one.jct_us / SECOND, one.lost_us / SECOND


#: Each needs half of its memory at first, and all of it after 5 s of work.
LATE = {"warmup_us": 5 * SECOND, "warmup_share_ppm": 500_000}


def late_pair(**second: object) -> list[TraceJob]:
    """Each has 3 GiB at first and 6 GiB later, of 10."""
    half = {"utilization_ppm": 500_000}
    return [job("A", 0, 20, 6, **half), job("B", 2, 20, 6, **half, **second)]


def test_memory_that_is_needed_late_is_denied_late() -> None:
    """A has its 6 at 5 s.  B has come at 2 s, wants 6 at 7 s, and is denied: 5 s are lost.  It comes back alone, when A
    is through at 20 s, and takes its 20 s from there.
    """
    denied: list[Micros] = []

    def witness(now: Micros, happened: object) -> None:
        if isinstance(happened, commands.DenyMemory):
            denied.append(now)

    result = simulate(late_pair(), options(**LATE), witness=witness)
    first, second = result.jobs
    assert denied == [7 * SECOND]
    assert (times(first), times(second)) == ((20.0, 0.0), (38.0, 5.0))
    assert (second.outcome, second.attempts, second.out_of_memory) == (Outcome.SUCCEEDED, 2, 1)
    assert second.service_us == 25 * SECOND, "what was lost is service too"
    summary = summarize(result)
    assert (summary.out_of_memory, summary.recovered, summary.lost_s, summary.failed) == (1, 1, 5.0, 0)
    assert summary.occupied_s == 40.0, "of the only device, whether one or two are at work there"


def test_a_checkpoint_is_kept() -> None:
    """As above, but B goes on from its checkpoint at 4 s: 1 s of work is done twice."""
    assert simulate(late_pair(checkpoint_us=4 * SECOND), options(**LATE)).jobs[1].jct_us == 34 * SECOND


def test_a_job_larger_than_every_device_fails_with_a_reason() -> None:
    (one,) = simulate([job("A", 0, 20, 11)], options(retries=5)).jobs
    assert (one.outcome, one.out_of_memory, one.recoveries) == (Outcome.FAILED, 1, 0)
    assert "out of memory" in one.reason


def test_memory_by_grant_never_denies() -> None:
    """The same jobs under Carpool's defaults: they wait, and their memory is moved."""
    result = simulate(late_pair(), options(settings=Settings(), oversubscribe=Oversubscribe.AUTO, **LATE))
    assert [one.outcome for one in result.jobs] == [Outcome.SUCCEEDED] * 2
    assert summarize(result).out_of_memory == 0


def test_growth_counts_the_time_to_the_end_only() -> None:
    """A job that ends before its warm-up is over never needs all of its memory."""
    made = options(warmup_us=30 * SECOND, warmup_share_ppm=100_000)
    (one,) = simulate([job("A", 0, 20, 6)], made).jobs
    assert (one.outcome, one.jct_us) == (Outcome.SUCCEEDED, 20 * SECOND)


def test_a_gang_has_its_devices_to_itself() -> None:
    """B needs both devices while A is on one of them: it begins when A has ended, and C, behind it, has the rest."""
    made = options(devices=2, declare_memory=True)
    jobs = [job("A", 0, 10, 1), job("B", 1, 5, 1, gpus=2), job("C", 20, 5, 1)]
    result = simulate(jobs, made)
    assert [one.ended_us // SECOND for one in result.jobs] == [10, 15, 25]
    assert sorted((span.device, span.begin_us) for span in recording(result).spans if span.job == 1) == [
        (0, 10 * SECOND),
        (1, 10 * SECOND),
    ]
    assert result.occupied_us == (10 + 2 * 5 + 5) * SECOND


@st.composite
def traces(draw: st.DrawFn) -> tuple[list[TraceJob], Options]:
    seed = random.Random(draw(st.integers(0, 1 << 30)))
    jobs = [
        TraceJob(
            f"job{number}", seed.randrange(20) * SECOND, seed.randint(1, 12) * SECOND,
            gpus=seed.choice((1, 1, 1, 2)), persistent=seed.randint(0, 11 * 1024) * MIB,
            ephemeral=seed.choice((0, seed.randint(0, 1024))) * MIB, utilization_ppm=seed.randint(100_000, 1_000_000),
            estimates=(("wrong", seed.randint(1, 10 * 1024) * MIB),) if seed.random() < 0.7 else (),
            checkpoint_us=seed.choice((None, None, SECOND)),
        )
        for number in range(seed.randint(1, 14))
    ]  # fmt: skip
    made = options(
        devices=seed.randint(1, 3),
        settings=replace(
            REFUSING,
            placement=seed.choice(PLACEMENTS),
            refuse_growth=seed.choice((1, 1, 0)),
            placement_strict=seed.choice((0, 1)),
            warm_window_us=seed.choice((0, 3 * SECOND)),
            policy=seed.choice(("pack", "pack", "fair", "fifo")),
        ),
        oversubscribe=seed.choice((Oversubscribe.OFF, Oversubscribe.AUTO)),
        telemetry_us=seed.choice((0, SECOND)),
        warmup_us=seed.choice((0, 2 * SECOND)),
        warmup_share_ppm=seed.choice((500_000, 900_000)),
        declare_memory=seed.random() < 0.7,
        estimator=seed.choice(("", "wrong")),
    )
    return jobs, made


@given(traces())
@settings(deadline=None, max_examples=examples(60, fewer=25))
def test_nothing_is_lost(case: tuple[list[TraceJob], Options]) -> None:
    jobs, made = case
    result = simulate(jobs, made)
    for one in result.jobs:
        assert one.outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.REFUSED), one
        assert one.outcome is Outcome.SUCCEEDED or one.reason, one
        assert one.attempts == one.recoveries + 1
        assert one.recoveries <= one.out_of_memory <= one.recoveries + 1
        assert 0 <= one.lost_us <= one.service_us
        if one.outcome is Outcome.SUCCEEDED:
            assert one.service_us >= one.job.duration_us
            assert one.ended_us >= one.job.submit_us + one.job.duration_us
        elif one.outcome is Outcome.FAILED:
            assert one.out_of_memory == one.recoveries + 1, "they fail for want of memory only"
    check_memory(result)
    again = simulate(jobs, made)
    assert (again.jobs, again.events, again.busy_us) == (result.jobs, result.events, result.busy_us)


@pytest.mark.parametrize("estimator", ["", "low", "high", "unknown"])
def test_what_is_believed_of_memory_decides_who_runs_side_by_side(estimator: str) -> None:
    """Two jobs of 4 GiB on 10: together if that is known; one after the other if 7 GiB are believed, and reserved."""
    made = options(declare_memory=True, estimator=estimator, settings=replace(REFUSING, measured_after=1_000_000,
                   measured_quiet_us=10**12))  # fmt: skip
    believed = (("high", 7 * GIB), ("low", GIB))
    pair = [job(name, 0, 10, 4, utilization_ppm=500_000, estimates=believed) for name in "AB"]
    ended = [one.ended_us // SECOND for one in simulate(pair, made).jobs]
    assert ended == ([10, 20] if estimator == "high" else [10, 10])


def test_an_estimate_that_is_too_high_keeps_nobody_waiting_once_a_job_is_measured() -> None:
    """10 GiB; a job has 4, and 5.5 are believed.  A is measured after three iterations, as live; then B fits, too."""
    made = options(declare_memory=True, estimator="high")
    pair = [job(name, 0, 10, 4, utilization_ppm=500_000, estimates=(("high", 11 * GIB // 2),)) for name in "AB"]
    first, second = simulate(pair, made).jobs
    assert first.ended_us == 10 * SECOND
    assert second.started_us == 300_000 and second.ended_us == 10 * SECOND + 300_000
