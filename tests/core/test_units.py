"""Sizes and times for people: what the docstrings show, and the borders between the units."""

from __future__ import annotations

import doctest

import pytest

from carpool.core import units
from carpool.core.units import format_duration, format_seconds, format_size, format_time_us
from carpool.protocol import units as on_the_protocol

SECOND = 1_000_000


def test_what_the_docstrings_show() -> None:
    found = doctest.testmod(units)
    assert found.attempted >= 4 and found.failed == 0


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (-5, "-5 B"),
     ((1 << 20) - 1, "1024 KiB"), (1 << 20, "1 MiB"), ((1 << 30) - 1, "1024 MiB"), (1 << 30, "1 GiB"),
     (5 << 40, "5120 GiB")],
)  # fmt: skip
def test_sizes_between_two_units(number: int, text: str) -> None:
    assert format_size(number) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [(-1, "0.0s"), (9_949_999, "9.9s"), (10 * SECOND, "10s"), (60 * SECOND - 1, "59s"), (60 * SECOND, "1m00s"),
     (3600 * SECOND - 1, "59m59s"), (3600 * SECOND, "1h00m"), (86_400 * SECOND - 1, "23h59m"),
     (86_400 * SECOND, "1d00h")],
)  # fmt: skip
def test_durations_between_two_units(us: int, text: str) -> None:
    assert format_duration(us) == text


def test_times_of_reasons_keep_their_decimal_and_those_of_settings_do_not() -> None:
    assert (format_seconds(2 * SECOND), format_time_us(2 * SECOND)) == ("2.0 s", "2 s")


def test_the_protocol_has_the_same_formatters() -> None:
    for name in ("format_duration", "format_size", "format_time_us"):
        assert getattr(on_the_protocol, name) is getattr(units, name)
