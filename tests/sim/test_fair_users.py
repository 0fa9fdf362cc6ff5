"""Users under `fair` in the simulator: the same core decides."""

from __future__ import annotations

from collections import Counter

from carpool.core.model import GIB, Allocation, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import TraceJob

SECOND = 1_000_000
ANNA, BEN = 1001, 1002


def run(anna: int, ben: int, **settings: object) -> Result:
    """So many jobs of each, of ten seconds, submitted one after the other within a second."""
    owners = [ANNA] * anna + [BEN] * ben
    jobs = [
        TraceJob(str(number), number, 10 * SECOND, owner=owner, persistent=GIB) for number, owner in enumerate(owners)
    ]
    chosen = Settings(allocation=Allocation.LANES, reserve_after_us=10_000 * SECOND, **settings)  # type: ignore[arg-type]
    return simulate(jobs, Options(1, chosen, 100 * GIB, declare_memory=False, record=True))


def first_to_end(result: Result, owners: list[int], count: int) -> Counter[int]:
    order = sorted(range(len(owners)), key=lambda number: result.jobs[number].ended_us)
    return Counter(owners[number] for number in order[:count])


def test_a_user_with_many_jobs_gets_no_larger_share_under_fair() -> None:
    owners = [ANNA] * 20 + [BEN] * 5
    fair = first_to_end(run(20, 5, policy="fair", max_jobs=1), owners, 10)
    assert abs(fair[ANNA] - fair[BEN]) <= 2
    assert first_to_end(run(20, 5, policy="pack", max_jobs=1), owners, 10) == {ANNA: 10}
