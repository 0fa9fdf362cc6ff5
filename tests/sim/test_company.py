"""What the core learns of modelled jobs that slow each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.core.model import GIB, Settings
from carpool.core.state.slowdown_table import SlowdownTable
from carpool.sim.driver import Simulation
from carpool.sim.model.options import Options, Timeslice
from carpool.sim.model.trace_job import TraceJob
from tests.examples import examples

SECOND = 1_000_000


def job(model: str, at: float, takes: float) -> TraceJob:
    """Iterations of 100 ms."""
    count = int(takes * 10)
    figures = {"iterations": count, "iteration_us": SECOND // 10, "persistent": GIB}
    return TraceJob(model, int(at * SECOND), count * SECOND // 10, model=model, **figures)


traces = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(0, 60), st.integers(1, 40)), min_size=2, max_size=12, unique_by=str
)


@settings(max_examples=examples(25, fewer=10), deadline=None)
@given(traces, st.sampled_from(["pack", "fair"]), st.integers(1, 2), st.sampled_from([None, 1, 2]))
def test_what_is_learned_is_what_is_so(
    drawn: list[tuple[str, int, int]], policy: str, devices: int, most_lanes: int | None
) -> None:
    """Alone an iteration takes 100 ms, beside one other lane twice as long; whoever comes and goes, in turns or not."""
    jobs = [replace(job(kind, at, takes), id=str(number)) for number, (kind, at, takes) in enumerate(drawn)]
    chosen = Settings(policy=policy, margin=0, max_lanes=most_lanes)
    simulation = Simulation(jobs, Options(devices, chosen, 16 * GIB, interference=Timeslice()))
    simulation.run(None)
    for (_, _, beside), pace in paces_of(simulation).rows():
        truth = SECOND // 5 if beside else SECOND // 10
        # Stretches begin and end within iterations: one at each end, and there are as many ends as jobs at most.
        assert abs(pace.total_us - pace.iterations * truth) <= truth * 2 * (len(jobs) + 1)
        if pace.enough:
            assert pace.total_us / pace.iterations == pytest.approx(truth, rel=0.25)


def paces_of(simulation: Simulation) -> SlowdownTable:
    return simulation._machine._state.slowdowns
