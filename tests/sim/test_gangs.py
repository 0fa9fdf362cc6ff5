"""Jobs for several devices in lanes: each device to itself, all at once, and nobody waits for ever."""

from __future__ import annotations

import random

import pytest

from carpool.core.model import GIB, Allocation, Outcome, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import TraceJob

SECOND = 1_000_000


def job(name: str, at: int, takes: int, gpus: int = 1) -> TraceJob:
    return TraceJob(name, at * SECOND, takes * SECOND, gpus=gpus, persistent=GIB)


def run(jobs: list[TraceJob], **settings: object) -> Result:
    chosen = Settings(policy="pack", allocation=Allocation.LANES, reserve_after_us=SECOND, **settings)  # type: ignore[arg-type]
    return simulate(jobs, Options(3, chosen, 10 * GIB, declare_memory=False, record=True))


def test_two_that_have_waited_too_long_do_not_wait_for_each_other() -> None:
    """D overtakes B and C, so devices are kept for both: one for C alone does not make those kept for B unusable."""
    jobs = [job("A", 4, 9, 2), job("B", 5, 3, 2), job("C", 6, 5, 2), job("D", 7, 3)]
    assert [one.ended_us // SECOND for one in run(jobs).jobs] == [13, 16, 21, 10]


@pytest.mark.parametrize("backfill", [None, 0, 1])
@pytest.mark.parametrize("seed", range(40))
def test_all_end_and_none_shares(seed: int, backfill: int | None) -> None:
    draw = random.Random(seed)
    jobs = [
        job(str(number), draw.randrange(8), draw.randint(1, 9), draw.choice((1, 1, 2, 3)))
        for number in range(draw.randint(4, 12))
    ]
    result = run(jobs, max_jobs=2, backfill=backfill)
    assert {one.outcome for one in result.jobs} == {Outcome.SUCCEEDED}
    assert result.recording is not None
    spans = result.recording.spans
    for span in spans:
        if jobs[span.job].gpus > 1:
            beside = [other for other in spans if other.device == span.device and other.job != span.job
                      and other.begin_us < span.end_us and span.begin_us < other.end_us]  # fmt: skip
            assert beside == []
            others = {
                o.device for o in spans if (o.job, o.begin_us, o.end_us) == (span.job, span.begin_us, span.end_us)
            }
            assert len(others) == jobs[span.job].gpus
