"""The cores of a machine: what jobs get done on them together, and how the curve is written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.sim.model.cores import Cores, check_cores, levelled, parse_cores
from carpool.sim.model.trace_job import WHOLE_PPM

#: Any measured speeds, by number of jobs.
measured = st.dictionaries(st.integers(1, 200), st.integers(0, 300 * WHOLE_PPM), max_size=8).map(
    lambda found: sorted(found.items())
)
demands = st.integers(0, 500 * WHOLE_PPM)


@pytest.mark.parametrize(
    ("text", "demand", "speed"),
    [
        ("2:1.8", 0.5, 1),
        ("2:1.8", 1, 1),
        ("2:1.8", 1.5, 1.4 / 1.5),  # half way from S(1) to S(2)
        ("2:1.8", 2, 0.9),
        ("2:1.8", 3, 0.6),  # three jobs get no more done than two
        ("4", 3.7, 1),
        ("4", 8, 0.5),
        ("1", 2.5, 0.4),
        ("4:1.5,1.8,2", 3.5, 1.9 / 3.5),
    ],
)
def test_the_speed_of_each_job(text: str, demand: float, speed: float) -> None:
    assert parse_cores(text).speed_ppm(round(demand * WHOLE_PPM)) == int(speed * WHOLE_PPM + 1e-6)


@given(measured, st.lists(demands, min_size=2))
def test_no_job_is_faster_than_alone_and_more_jobs_get_more_done(
    points: list[tuple[int, int]], some: list[int]
) -> None:
    cores = Cores(levelled(points))
    check_cores(cores)
    for less, more in pairwise(sorted(some)):
        slower, faster = cores.speed_ppm(more), cores.speed_ppm(less)
        assert 0 < slower <= faster <= WHOLE_PPM
        # Rounding costs less than a millionth of what each demands.
        assert more * slower >= less * faster - more


def test_measured_points_that_make_sense_stay() -> None:
    points = [(1, WHOLE_PPM), (2, 1_900_000), (4, 2_600_000)]
    assert levelled(points) == tuple(points)


def test_noise_makes_no_job_faster_and_no_core_slower() -> None:
    assert levelled([(1, 1_010_000), (2, 2_100_000), (3, 1_700_000)]) == (
        (1, 1_000_000),
        (2, 2_000_000),
        (3, 2_000_000),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with no number of cores; write as in 4 or 2:1.8"),
        ("0", "begins with no number"),
        ("-2", "begins with no number"),
        ("2:", "'' is not a speed"),
        ("2:fast", "'fast' is not a speed; write as in 1.8"),
        ("2:nan", "is not a speed"),
        ("2:1e999", "is not a speed"),
        ("3:1.8", "'3:1.8' has 1 speeds; 3 cores need those of 2 to 3 jobs"),
        ("2:2.1", "S(2) is 2.1; it must be at most 2, or each job would be faster"),
        ("3:1.2,1.9", "S(3) is 1.9; it must be at most 1.8"),
        ("2:0.9", "S(2) is 0.9, less than S(1); more jobs get no less done together"),
    ],
)
def test_curves_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_cores(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "points", [(), ((2, WHOLE_PPM),), ((1, 900_000),), ((1, WHOLE_PPM), (3, 2 * WHOLE_PPM), (2, 2 * WHOLE_PPM))]
)
def test_points_that_are_no_curve(points: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match=r"must be 1|order them by number"):
        check_cores(Cores(points))
