"""The jobs of a simulation follow from load and seed alone."""

from __future__ import annotations

import pytest

from carpool.sim.generators import generate
from carpool.sim.model.replicas import Spread, drawn
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.study.job_sources import Generated, Recorded, Replicated, jobs_of

TRACE = [TraceJob("a", 0, 10), TraceJob("b", 100, 10), TraceJob("c", 301, 10)]


def test_a_generator_is_asked_with_load_and_seed() -> None:
    source = Generated("poisson:jobs=50,load=0.1,mean_minutes=5", devices=8, limit=30)
    assert source.jobs(None, 3) == generate("poisson:jobs=50,load=0.1,mean_minutes=5", 3)[:30]
    assert source.jobs(0.9, 3) == generate("poisson:jobs=50,load=0.9,mean_minutes=5,devices=8", 3)[:30]


def test_a_load_makes_recorded_jobs_come_faster() -> None:
    source = Recorded(TRACE)
    assert source.jobs(None, None) is TRACE
    assert [job.submit_us for job in source.jobs(2.0, None)] == [0, 50, 150]
    assert [job.duration_us for job in source.jobs(0.5, None)] == [10, 10, 10]


def test_replicas_are_of_the_same_arrivals() -> None:
    spread = Spread(0.1, 0.1)
    source = Replicated(Recorded(TRACE), None, spread)
    assert source.jobs(2.0, 4) == drawn(Recorded(TRACE).jobs(2.0, None), [spread] * 3, 4)
    assert Replicated(Recorded(TRACE), None, None).jobs(None, 4) == TRACE, "nothing was measured twice"


def test_all_policies_get_the_same_jobs_without_making_them_again() -> None:
    source = Generated("poisson:jobs=50", devices=8)
    assert jobs_of(source, None, 3) is jobs_of(source, None, 3)
    assert jobs_of(source, None, 4) != jobs_of(source, None, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [("salus", "salus has no load; bursty and poisson have"), ("poisson:mean_interarrival_s=5", "give one of them")],
)
def test_a_generator_without_a_load_says_so(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Generated(text, devices=1).jobs(0.5, 0)
