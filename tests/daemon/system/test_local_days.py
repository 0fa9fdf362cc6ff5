"""Days of a time zone, with the nights on which its clocks change, and amounts spread over them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carpool.daemon.system.clock import begin_of, day_after, day_of, days_between, spread

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


@contextmanager
def local(zone: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()


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
