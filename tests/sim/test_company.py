"""What the core learns of modelled jobs that slow each other, and where it puts the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.core.model import GIB, Settings
from carpool.core.state.slowdown_table import SlowdownTable
from carpool.sim.driver import Simulation, simulate
from carpool.sim.model.interference import Timeslice
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from tests.examples import examples

SECOND = 1_000_000


class Kinds:
    """Slices of the whole device for all but "small" jobs, which nobody notices."""

    name = "kinds"

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        large = [job for job in jobs if job.model != "small"]
        slices = Timeslice().speeds(large)
        return [slices[0] if job in large else 1_000_000 for job in jobs]


def job(model: str, at: float, takes: float) -> TraceJob:
    """Iterations of 100 ms."""
    count = int(takes * 10)
    figures = {"iterations": count, "iteration_us": SECOND // 10, "persistent": GIB}
    return TraceJob(model, int(at * SECOND), count * SECOND // 10, model=model, **figures)


def places(jobs: list[TraceJob], model: object, **settings: object) -> list[int]:
    """The device of each job."""
    chosen = Settings(policy="pack", placement="first-fit", margin=0, **settings)  # type: ignore[arg-type]
    result = simulate(jobs, Options(2, chosen, 16 * GIB, interference=model, record=True))  # type: ignore[arg-type]
    assert result.recording is not None
    return [next(span.device for span in result.recording.spans if span.job == number) for number in range(len(jobs))]


@pytest.mark.parametrize("limit", [1_500_000, 0])
def test_two_that_slow_each_other_are_apart_the_next_time(limit: int) -> None:
    """x beside y, in slices, takes twice its time."""
    learn = [job("x", 0, 9), job("y", 10, 9), job("x", 20, 9), job("w", 20, 30), job("y", 20, 9)]
    again = [job("x", 100, 20), job("w", 100, 20), job("y", 101, 9)]
    assert places(learn + again, Timeslice(), interference_limit_ppm=limit) == [0, 0, 0, 1, 0, 0, 1, 1 if limit else 0]


def test_a_good_pair_is_found_again() -> None:
    """small beside y takes no longer, nor does y; of w, which first-fit would take, nothing is known."""
    learn = [job("small", 0, 9), job("y", 10, 9), job("small", 20, 9), job("w", 20, 30), job("y", 20, 9)]
    again = [job("w", 100, 20), job("y", 100.1, 20), job("small", 101, 9)]
    assert places(learn + again, Kinds()) == [0, 0, 0, 1, 0, 0, 1, 1]
    assert places(learn + again, Kinds(), interference_limit_ppm=0)[-1] == 0


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
