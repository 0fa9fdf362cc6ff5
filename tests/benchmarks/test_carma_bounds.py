"""Bounds on the makespan: worked out by hand, and below whatever is simulated."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks.reproduce import results
from benchmarks.reproduce.carma_bounds import AS_ASSUMED, LIMITS, Demand, bounds, earliest_end, highest
from benchmarks.reproduce.carma_ways import run, ways
from carpool.core.model import GIB
from carpool.sim.model.trace_job import TraceJob

MINUTE = 60_000_000


def job(name: str, at: float, minutes: float, share: float = 1.0, gpus: int = 1, gib: float = 1.0) -> TraceJob:
    memory = round(gib * GIB)
    return TraceJob(
        name, round(at * MINUTE), round(minutes * MINUTE), gpus, persistent=memory // 4,
        ephemeral=memory - memory // 4, utilization_ppm=round(share * 1_000_000),
    )  # fmt: skip


def test_nobody_is_served_before_it_arrives() -> None:
    """One device.  Of A at most 10 x 0.5 is done until B comes; from then on 5 + 15 are left, so 30 at the earliest."""
    demands = [Demand(0, 0.5, 10.0), Demand(10, 1.0, 15.0)]
    assert earliest_end(demands, devices=1) == 30.0
    assert earliest_end([Demand(0, 0.5, 10.0)], devices=1) == 20.0, "it is no faster than alone"
    assert earliest_end([], devices=1) == 0.0


def test_each_limit_by_hand() -> None:
    """Three devices.  A task for two uses 0.5 of each: it shares them, or has them to itself."""
    jobs = [
        *(job(str(number), 0, 60, 0.5) for number in range(6)),
        job("pair", 0, 60, 0.5, gpus=2),
        job("late", 100, 5),
    ]
    found = bounds(jobs)
    assert tuple(found) == tuple(LIMITS)
    assert found["longest"] == 105.0
    assert found["whole"] == pytest.approx((8 * 60 + 5) / 3, abs=0.01)
    assert found["computing"] == 105.0 and found["apart"] == 105.0, "all others can have ended when the last one comes"
    assert bounds(jobs[:-1])["computing"] == pytest.approx((6 * 0.5 + 1) * 60 / 3, abs=0.01)
    assert bounds(jobs[:-1])["apart"] == pytest.approx((6 * 0.5 + 2) * 60 / 3, abs=0.01)


def test_memory_is_needed_for_as_long_as_a_task_computes() -> None:
    """Nine tasks of 40 GiB on three devices of 40 GiB: three at a time; each needs half of it in its first minute."""
    jobs = [job(str(number), 0, 10, 0.1, gib=40) for number in range(9)]
    assert bounds(jobs)["memory"] == pytest.approx(9 * 9.5 / 3, abs=0.01)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["CARMA", "Carpool, pack"])
def test_no_simulation_is_below(seed: int, name: str) -> None:
    draw = random.Random(seed)
    jobs = [
        job(str(number), draw.uniform(0, 60), draw.uniform(2, 60), draw.choice((0.3, 0.6, 0.9)),
            draw.choice((1, 1, 1, 1, 2)), draw.uniform(1, 30))
        for number in range(draw.randint(3, 14))
    ]  # fmt: skip
    made = run(jobs, ways()[name], draw.choice(("magm", "first-fit", "lug")), draw.choice(("none", "oracle")))
    found = bounds(jobs)
    assert made["lost"] == 0
    assert made["makespan"] >= highest(found) - 0.02
    alone = run(jobs, ways()["CARMA"], "exclusive", "none")
    assert alone["makespan"] >= found["whole"] - 0.02


def test_no_stored_result_is_below() -> None:
    carma = json.loads(results.newest().read_text(encoding="utf-8"))["carma"]
    for trace in carma["traces"].values():
        made = [row["makespan"] for way in trace["ways"].values() for each in way.values() for row in each.values()]
        assert made and min(made) >= highest(trace["bounds"][AS_ASSUMED])
        for case, found in trace["bounds"].items():
            rows = trace["sensitivity"][case]
            assert rows["exclusive"]["makespan"] >= found["whole"]
            assert all(row["makespan"] >= highest(found) for name, row in rows.items() if name != "exclusive")
