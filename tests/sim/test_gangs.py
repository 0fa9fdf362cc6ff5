"""Jobs for several devices in lanes: each device to itself, all at once, and nobody waits for ever."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from carpool.core.model import GIB, Allocation, Outcome, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result, Span
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
def test_all_end_and_none_shares(backfill: int | None) -> None:
    wrong = [f"seed {seed}: {what}" for seed in range(40) for what in wrong_with(seed, backfill)]
    assert not wrong, "\n".join(wrong)


def wrong_with(seed: int, backfill: int | None) -> Iterator[str]:
    jobs = drawn(random.Random(seed))
    result = run(jobs, max_jobs=2, backfill=backfill)
    yield from (f"{one.job.id} ended {one.outcome}" for one in result.jobs if one.outcome != Outcome.SUCCEEDED)
    assert result.recording is not None
    for span in result.recording.spans:
        if jobs[span.job].gpus > 1:
            yield from wrong_of_gang(span, jobs[span.job], result.recording.spans)


def drawn(draw: random.Random) -> list[TraceJob]:
    return [
        job(str(number), draw.randrange(8), draw.randint(1, 9), draw.choice((1, 1, 2, 3)))
        for number in range(draw.randint(4, 12))
    ]


def wrong_of_gang(span: Span, gang: TraceJob, spans: Sequence[Span]) -> Iterator[str]:
    for other in spans:
        together = other.begin_us < span.end_us and span.begin_us < other.end_us
        if together and other.device == span.device and other.job != span.job:
            yield f"{other} beside {span}"
    when = (span.begin_us, span.end_us)
    at_once = {one.device for one in spans if one.job == span.job and (one.begin_us, one.end_us) == when}
    if len(at_once) != gang.gpus:
        yield f"{span} on devices {at_once}"
