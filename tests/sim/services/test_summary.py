"""The figures of services, and their weights on the way to a device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.serve.plan.grouping import LayerCost, LinkCost, finish, start
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.summary import summarize
from carpool.sim.services.front import WeightCopies, finish_us
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


RATE = 6000  # bytes per microsecond


@given(
    groups=st.integers(1, 40), group_us=st.integers(1, 900), transfer=st.integers(0, 300), compute=st.integers(0, 900)
)
def test_groups_that_are_alike_finish_as_the_model_of_time_says(
    groups: int, group_us: int, transfer: int, compute: int
) -> None:
    copies = WeightCopies(RATE, group_us * RATE, transfer)
    assert copies.place("m", groups * group_us * RATE, 0)
    arrival = copies.arrival("m")
    layers, link = [LayerCost(group_us * RATE, compute * 1000)] * groups, LinkCost(transfer * 1000, RATE * 1_000_000)
    grouping = tuple(range(1, groups + 1))
    assert arrival.first_us * 1000 == start(layers, link, grouping)
    assert finish_us(arrival, 0, groups * compute) * 1000 == finish(layers, link, grouping)


def test_one_copy_after_another() -> None:
    copies = WeightCopies(RATE, 6_000_000, 10)
    assert copies.place("a", 12_000_000, 100)
    assert copies.place("b", 6_000_000, 200)
    assert not copies.place("a", 12_000_000, 300), "it is on its way"
    assert copies.arrival("a") == (2, 1110, 2120)
    assert copies.arrival("b") == (1, 3130, 3130)
    assert copies.resident == 18_000_000
    copies.drop("a")
    assert copies.resident == 6_000_000
    assert "a" not in copies
    assert copies.place("a", 12_000_000, 10_000), "it has to come again"
    assert copies.arrival("a").there_us == 12_020


def test_no_weights_and_no_time() -> None:
    copies = WeightCopies(0, 6_000_000, 0)
    copies.place("none", 0, 5)
    copies.place("large", 1 << 40, 5)
    assert copies.arrival("none").there_us == copies.arrival("large").there_us == 5
    assert finish_us(copies.arrival("large"), 7, 3) == 10


def test_nothing_computes_before_its_turn() -> None:
    copies = WeightCopies(RATE, 6_000_000, 0)
    copies.place("m", 60_000_000, 0)  # 10 ms
    assert finish_us(copies.arrival("m"), 50_000, 20_000) == 70_000
    assert finish_us(copies.arrival("m"), 8_000, 1_000) == 10_100, "the last group still has to compute"
