"""Sizes, times and places as people give them."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core.model import NUMBER_SETTINGS
from carpool.core.units import format_seconds
from carpool.protocol import setting_text as settings_module
from carpool.protocol import units as units_module
from carpool.protocol.paths import Home, default_home
from carpool.protocol.setting_text import parse_setting, setting_text
from carpool.protocol.units import (
    exact_size,
    exact_time,
    format_duration,
    format_size,
    format_time_us,
    parse_size,
    parse_time_us,
)


@pytest.mark.parametrize("module", [units_module, settings_module])
def test_what_the_docstrings_show(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted >= 4 and found.failed == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096B", 4096),
        ("1GiB", 1 << 30),
        ("1.5 GiB", 3 << 29),
        ("300mib", 300 << 20),
        ("2g", 2 << 30),
        ("1kB", 1000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "1 GiBs", "1,5GiB", "1e9", "nan", "9999999TiB", "1\nGiB2", "１GiB"]
)
def test_malformed_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("16", "16GiB"), ("1.5", "1.5GiB"), ("4096", "4096MiB"), ("1048576", "1048576B")]
)
def test_a_size_needs_a_unit(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"it has no unit: did you mean {re.escape(meant)}[?]"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10s", 10_000_000),
        ("10", 10_000_000),
        ("250ms", 250_000),
        ("1.5h", 5_400_000_000),
        ("7us", 7),
        ("1h06m", 3_960_000_000),
        ("1d 2h 3m 4.5s", 93_784_500_000),
        ("4d03h", 356_400_000_000),
    ],
)
def test_times(text: str, us: int) -> None:
    assert parse_time_us(text) == us


@pytest.mark.parametrize(
    "text", ["", "soon", "-3s", "10 parsecs", "1h06", "06m1h", "1.5h30m", "5m5m", "1 2s", "9" * 30]
)
def test_malformed_times(text: str) -> None:
    with pytest.raises(ValueError, match="too large for a time" if "9" in text else "is not a time"):
        parse_time_us(text)


@given(st.integers(0, 1 << 50))
def test_sizes_that_are_printed_are_understood(size: int) -> None:
    """Up to half a unit of the one decimal that is printed."""
    unit = max(factor for factor in (1, 1 << 10, 1 << 20, 1 << 30) if factor <= max(size, 1))
    assert abs(parse_size(format_size(size)) - size) <= unit / 20 + 1, "a byte is not divided"
    assert parse_size(exact_size(size)) == size


@given(st.integers(0, 10**15))
def test_times_that_are_printed_are_understood(us: int) -> None:
    assert parse_time_us(exact_time(us)) == us
    assert abs(parse_time_us(format_seconds(us)) - us) <= 50_000 + us * 1e-9
    step = 1_000_000 if us >= 1_000_000 else 1000 if us >= 1000 else 1
    assert abs(parse_time_us(format_time_us(us)) - us) <= step / 20 + us * 1e-9
    lost = us - parse_time_us(format_duration(us))
    if us < 10_000_000:
        assert abs(lost) <= 50_000
    else:
        assert 0 <= lost < (1_000_000 if us < 3_600_000_000 else 60_000_000 if us < 86_400_000_000 else 3_600_000_000)


@given(st.integers(0, 10**12))
def test_settings_that_are_printed_are_understood(number: int) -> None:
    values = {name: number % size_of(name) for name in (*NUMBER_SETTINGS, "patience_us")}
    pairs = [pair for name, value in values.items() for pair in ((name, value), (name, None))]
    assert [pair for pair in pairs if parse_setting(setting_text(*pair)) != pair] == []


def size_of(name: str) -> int:
    """How many values a setting has, at least."""
    sizes = {"serving": 3}
    return sizes.get(name, 10**6 if name.endswith("_ppm") else 10**12)


def test_the_default_home() -> None:
    assert default_home({"CARPOOL_HOME": "/somewhere"}) == Path("/somewhere")
    assert default_home({"XDG_STATE_HOME": "/state"}) == Path("/state/carpool")
    assert default_home({"XDG_STATE_HOME": "relative"}) == Path.home() / ".local/state/carpool"
    assert Home(Path("/h")).job(7).log == Path("/h/jobs/7/log")
