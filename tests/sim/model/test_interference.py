"""Models of interference, and what becomes of those that say nonsense."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.sim.driver import simulate
from carpool.sim.model.options import Checked, Concurrent, Options, Timeslice
from carpool.sim.model.trace_job import TraceJob


def job(utilization: float, device_us: int = 10, host_us: int = 0) -> TraceJob:
    return TraceJob("x", 0, device_us + host_us, 1, 1, device_us, host_us, utilization_ppm=int(utilization * 1e6))


def test_nobody_is_slowed_until_the_device_is_full_and_slices_are_equal() -> None:
    assert Concurrent().speeds([job(0.4), job(0.6)]) == [1_000_000] * 2
    assert Concurrent().speeds([job(1.0), job(1.0), job(0.5)]) == [400_000] * 3
    assert Concurrent().speeds([job(1.0, 10, 10), job(1.0, 10, 10)]) == [1_000_000] * 2, "half of the time on the host"
    assert Timeslice().speeds([job(0.1)] * 4) == [250_000] * 4


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([0.5], "a speed is a whole number of millionths"),
        ([0], "a speed is a whole number of millionths"),
        ([2_000_000], "a speed is a whole number of millionths"),
        ([], "one speed for each of 1 jobs"),
        (None, "one speed for each of 1 jobs"),
        (ZeroDivisionError("division by zero"), "failed: ZeroDivisionError"),
    ],
)
def test_a_model_of_ones_own_that_is_wrong(answer: Any, said: str) -> None:
    class Mine:
        name = "mine"

        def speeds(self, jobs: object) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    with pytest.raises(ValueError, match=f"Mine.speeds .*{said}"):
        simulate([job(1.0)], Options(interference=Checked(Mine())))
