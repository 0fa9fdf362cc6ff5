"""Sizes, times and places as people give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.protocol.paths import Home, default_home
from carpool.protocol.units import format_size, parse_size, parse_time_us


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
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
    ("text", "us"), [("10s", 10_000_000), ("10", 10_000_000), ("250ms", 250_000), ("1.5h", 5_400_000_000), ("7us", 7)]
)
def test_times(text: str, us: int) -> None:
    assert parse_time_us(text) == us


@pytest.mark.parametrize("text", ["", "soon", "-3s", "10 parsecs"])
def test_malformed_times(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time_us(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (300 << 20, "300 MiB"), (3 << 29, "1.5 GiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


def test_the_default_home() -> None:
    assert default_home({"CARPOOL_HOME": "/somewhere"}) == Path("/somewhere")
    assert default_home({"XDG_STATE_HOME": "/state"}) == Path("/state/carpool")
    assert default_home({"XDG_STATE_HOME": "relative"}) == Path.home() / ".local/state/carpool"
    assert Home(Path("/h")).job(7).log == Path("/h/jobs/7/log")
