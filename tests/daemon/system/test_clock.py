"""Clocks that are set, and the days of the daemon's time zone."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carpool.daemon.system import clock
from carpool.daemon.system.clock import (
    LEAST_STEP_US,
    WallSteps,
    begin_of,
    day_after,
    day_of,
    days_between,
    spread,
    wall_ahead_us,
)
from tests.daemon.journal_file import local

DAY = 86_400_000_000


def test_steps_are_noticed_once_and_small_ones_when_they_add_up() -> None:
    ahead = [100]
    steps = WallSteps(read=lambda: ahead[0])
    assert steps.take() == 0
    for step in (400 * DAY, -403 * DAY):
        ahead[0] += step
        assert (steps.take(), steps.take()) == (step, 0)
    ahead[0] += LEAST_STEP_US - 1
    assert steps.take() == 0
    ahead[0] += 1
    assert steps.take() == LEAST_STEP_US


def test_a_step_before_the_start_is_one() -> None:
    assert WallSteps(7, lambda: DAY).take() == DAY - 7


def test_a_process_that_was_stopped_between_two_looks_has_seen_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monotonic = iter([0, 9_000_000, 9_000_000, 9_000_001])
    monkeypatch.setattr(clock, "monotonic_us", lambda: next(monotonic))
    monkeypatch.setattr(clock, "wall_us", lambda: DAY + 9_000_000)
    assert wall_ahead_us() == DAY


HOUR = 3_600_000_000
#: Clocks that change at night, at midnight to either side, by half an hour, over the date line; and one that stands.
ZONES = (
    "Europe/Berlin",
    "America/Sao_Paulo",
    "America/Havana",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kolkata",
    "UTC",
)


@pytest.mark.parametrize("zone", ZONES)
def test_every_day_of_years_begins_where_the_one_before_ends(zone: str) -> None:
    with local(zone):
        for day in days_between("2010-01-01", "2012-12-31"):
            begin, following = begin_of(day), begin_of(day_after(day))
            assert day_of(begin - 1) < day <= day_of(begin) and day_of(following - 1) <= day
            assert (following - begin) / HOUR in (0, 23, 23.5, 24, 24.5, 25), day


def test_lengths_of_days_on_which_clocks_change() -> None:
    with local("Europe/Berlin"):
        lengths = [begin_of(day_after(day)) - begin_of(day) for day in ("2026-03-29", "2026-10-25", "2026-11-26")]
        assert lengths == [23 * HOUR, 25 * HOUR, 24 * HOUR]
        begin, end = begin_of("2026-03-28"), begin_of("2026-03-30")
        assert spread(47_000, begin, end) == {"2026-03-28": 24_000, "2026-03-29": 23_000}
    with local("Pacific/Apia"):
        assert begin_of("2011-12-30") == begin_of("2011-12-31"), "this day was left out there"


@given(
    amount=st.integers(0, 10**15),
    begin=st.integers(1_200_000_000_000_000, 1_400_000_000_000_000),
    lasted=st.integers(-HOUR, 40 * 24 * HOUR),
)
@example(amount=7, begin=1_319_914_800_000_000, lasted=3 * 24 * HOUR)
def test_what_is_spread_adds_up_and_lies_evenly(amount: int, begin: int, lasted: int) -> None:
    with local("Europe/Berlin"):
        parts = spread(amount, begin, begin + lasted)
        assert sum(parts.values()) == amount and all(part >= 0 for part in parts.values())
        assert sorted(parts) == list(parts)
        for day, part in parts.items() if lasted > 0 else ():
            there = min(begin + lasted, begin_of(day_after(day))) - max(begin, begin_of(day))
            assert abs(part - amount * there / lasted) <= 1
