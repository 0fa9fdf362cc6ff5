"""Result files say what was measured and which targets were missed; two versions are compared side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import available
from benchmarks.figures import measured_once, median_figure
from benchmarks.jobs import environment, last_line
from benchmarks.machine import describe, slug
from benchmarks.report import Report, number
from benchmarks.versus import parse_arguments, ratios, values


def test_a_figure_is_the_median_with_its_range() -> None:
    figure = median_figure("b", "n", "ratio", [3.0, 1.0, 1.5], target=1.4)
    assert (figure.value, figure.low, figure.high, figure.runs, figure.met) == (1.5, 1.0, 3.0, 3, False)


def test_targets_are_upper_bounds_unless_they_say_otherwise() -> None:
    assert median_figure("b", "n", "1/s", [400.0], target=300.0, at_least=True).met
    assert not median_figure("b", "n", "1/s", [200.0], target=300.0, at_least=True).met
    assert measured_once("b", "n", "us", 5.0, target=5.0).met
    assert measured_once("b", "n", "us", 5.0).met is None


def test_result_files_name_machine_misses_skips_and_failures(tmp_path: Path) -> None:
    report = Report("2026-01-02", {"cpu": "Some(R) CPU @ 1.0GHz", "kernel": "6.1"}, quick=False)
    report.figures.append(median_figure("b", "slow | thing", "ratio", [2.0], target=1.0, detail={"bare_us": 3.25}))
    report.skipped["other"] = "no compiler"
    report.failed["third"] = "RuntimeError: no"
    path = report.write(tmp_path)
    assert path.name == "2026-01-02-some-cpu-1-0ghz.md"
    text = path.read_text()
    assert all(part in text for part in ("kernel: 6.1", "| NO |", "bare_us 3.25", "no compiler", "RuntimeError: no"))
    data = json.loads(path.with_suffix(".json").read_text())
    assert data["figures"][0]["met"] is False and data["figures"][0]["detail"] == {"bare_us": 3.25}


def test_quick_runs_do_not_overwrite_real_ones(tmp_path: Path) -> None:
    machine: dict[str, str | int] = {"cpu": "x"}
    names = {Report("2026-01-02", machine, quick).write(tmp_path).name for quick in (True, False)}
    assert names == {"2026-01-02-x.md", "2026-01-02-x-quick.md"}


def test_the_machine_is_described() -> None:
    facts = describe()
    assert facts["cores"] and facts["kernel"] and str(facts["torch"]).startswith("2.")
    assert str(facts["torch_of_emulated_gpu"]).startswith("2."), "run `make emulated-gpu`"


def test_both_sides_wait_passively_and_know_nothing_of_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARPOOL_JOB", "7")
    env = environment()
    assert env["OMP_WAIT_POLICY"] == "passive" and env["OMP_NUM_THREADS"] == "1" and "CARPOOL_JOB" not in env


@pytest.mark.parametrize(("value", "text"), [(0.0312, "0.0312"), (1.02, "1.02"), (12345.6, "12,346"), (0, "0")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_output_before_the_measurement_is_passed_over() -> None:
    assert last_line('warning: {\n{"a": 1}\n') == {"a": 1}


def test_slug_is_a_file_name() -> None:
    assert slug("Intel(R) Xeon(R) @ 2.80GHz") == "intel-xeon-2-80ghz"


def test_every_benchmark_of_the_table_exists(root: Path) -> None:
    table = (root / "benchmarks" / "README.md").read_text()
    assert {f"`bench_{name}.py`" in table for name in available()} == {True}


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
