"""Two versions side by side: what becomes a ratio, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.versus import parse_arguments, ratios, values


def test_ratios_are_those_within_a_round() -> None:
    """The machine became twice as slow between the rounds; the versions are equally fast."""
    key = ("core", "a decision")
    (figure,) = ratios([({key: 10.0}, {key: 10.0}), ({key: 20.0}, {key: 20.0}), ({key: 21.0}, {key: 20.0})])
    assert (figure.value, figure.low, figure.high, figure.runs) == (1.0, 1.0, 1.05, 3)
    assert figure.detail == {"this": 20.0, "that": 20.0}


def test_figures_of_one_version_only_and_zeros_have_no_ratio() -> None:
    one, other = {("b", "x"): 1.0, ("b", "new"): 1.0, ("b", "none"): 0.0}, {("b", "x"): 2.0, ("b", "none"): 1.0}
    assert [(figure.name, figure.value) for figure in ratios([(one, other)])] == [("this / that: x", 0.5)]


def test_values_by_benchmark_and_name() -> None:
    assert values([{"benchmark": "core", "name": "x", "value": 3.0, "unit": "us"}]) == {("core", "x"): 3.0}


def test_a_checkout_that_is_not_set_up_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments([str(tmp_path), "decisions"])
    assert "run `make setup`" in capsys.readouterr().err
