"""The figures of services."""

from __future__ import annotations

import pytest

from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.summary import summarize
from tests.sim.services.serving import FIRST, MS, SIZE, model, serve


def test_of_each_model_and_of_all() -> None:
    models = (
        model("a", at=[0, 100, 200], compute=30),
        model("b", size=0, at=[300, 301], compute=50, deadline_us=60 * MS),
    )
    summary = summarize(serve(*models, model("c", at=[])))
    services = summary.services
    assert services is not None
    a, b, c = services.models
    assert (a.model, a.requests, a.answered, a.missed, a.batches, a.copies) == ("a", 3, 3, None, 3, 1)
    assert a.p50_s == 0.03
    assert a.p99_s == pytest.approx((30_000 + 0.98 * FIRST) / 1e6)
    assert a.copied_gib == SIZE / (1 << 30)
    assert (b.requests, b.answered, b.missed, b.p99_s) == (2, 1, 1, 0.05)
    assert a.requests_per_s == pytest.approx(3 / 0.35)
    assert (c.requests, c.p50_s, c.missed) == (0, None, None)
    everything = services.all
    assert (everything.model, everything.requests, everything.answered, everything.missed) == (None, 5, 4, 1)
    assert services.turns == pytest.approx((140_000 + FIRST) / 350_000)
    assert services.computing == pytest.approx(0.4)
    assert (services.jobs_pauses, services.jobs_slowdown, services.jobs_share) == (0, None, None)
    assert (summary.jobs, summary.makespan_s) == (0, 0.0)


def test_of_jobs_beside_them() -> None:
    job = TraceJob("t", 0, 1000 * MS, iterations=20, iteration_us=50 * MS)
    services = summarize(serve(model(size=0, compute=50, at=range(100, 600, 100)), jobs=[job])).services
    assert services is not None
    assert (services.jobs_pauses, services.jobs_slowdown, services.jobs_share) == (5, 1.25, 1.0)


def test_without_services_there_are_no_figures() -> None:
    result = serve(model(at=[]))
    result.services = None
    assert summarize(result).services is None
