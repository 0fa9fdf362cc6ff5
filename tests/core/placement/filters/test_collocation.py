"""CARMA's collocation risk, with integers."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core.events import DeviceAdded, DeviceLoad
from carpool.core.machine import Machine
from carpool.core.model import DeviceSpec, Load, Settings
from carpool.core.placement.filters.collocation import risk_ppm, risky

SHARES = st.lists(st.integers(0, 1_000_000), min_size=1, max_size=80)


def formula(values: list[int]) -> float:
    """The same with floating point."""
    alpha, average = 2 / (len(values) + 1), float(values[0])
    for value in values[1:]:
        average = alpha * value + (1 - alpha) * average
    median, tail = numpy.percentile(values, [50, 95])
    return float(0.2 * numpy.mean(values) + 0.3 * median + 0.3 * tail + 0.2 * average)


@given(SHARES)
def test_it_is_the_weighted_sum_up_to_rounding(values: list[int]) -> None:
    assert risk_ppm(values) == pytest.approx(formula(values), abs=len(values) + 2)
    assert min(values) - 2 - len(values) <= risk_ppm(values) <= max(values)
    assert risk_ppm([values[0]] * 30) == values[0], "a constant load is its own risk"


@pytest.mark.parametrize(
    ("active", "occupancy", "dram", "closed_by"),
    [
        (800_000, 450_000, None, "SMOCC"),
        (800_000, None, 400_000, "DRAMA"),
        (799_999, 900_000, 900_000, None),
        (990_000, 449_999, 399_999, None),
        (990_000, None, None, None),
    ],
)
def test_a_device_is_closed_by_activity_and_one_more(
    active: int, occupancy: int | None, dram: int | None, closed_by: str | None
) -> None:
    why = risky(Load(active, active, occupancy, dram), Settings())
    assert (why is None) == (closed_by is None)
    if why is not None and closed_by is not None:
        assert closed_by in why and "SMACT" in why


def test_the_thresholds_are_settings() -> None:
    load = Load(500_000, 500_000, 100_000, None)
    assert risky(load, Settings()) is None
    assert risky(load, replace(Settings(), risk_active_ppm=500_000, risk_occupancy_ppm=100_000)) is not None


def test_a_load_belongs_to_a_device_that_exists() -> None:
    machine = Machine(Settings())
    machine.handle(DeviceAdded(DeviceSpec("host0", 1 << 30)), 0)
    machine.handle(DeviceLoad("host0", None, "no answer for 7 s"), 1)
    with pytest.raises(ValueError, match="no device 'host1'"):
        machine.handle(DeviceLoad("host1", None), 2)
