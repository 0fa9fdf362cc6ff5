"""Reproductions in small: they run, repeat exactly, and the page shows what is stored."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reproduce import __main__ as program
from benchmarks.reproduce import carma, inference, philly, results, sweeps, table1
from benchmarks.reproduce.carma_csv import assumed_utilization, persistent_share, read_carma, read_estimates
from benchmarks.reproduce.markdown import fill
from benchmarks.reproduce.paper import SALUS_FIFO_OVER_SRTF, SALUS_TABLE_1
from benchmarks.reproduce.spread import crossing, spread
from carpool.core.model import MIB

CARMA = "submit_s,task,gpus,mem_mib,solo_minutes\n0,vgg,1,6684,1.5\n30,xlnet,2,9192,2\n45.5,unet,1,30000,3\n"
CATALOGUE = """task,horus_mib,faketensor_mib,gpumemnet_bin_mib
vgg,21525.8262,3121.3,16000
xlnet,3661.7,40000,
"""
PHILLY = "job_id,submit_s,gpus,duration_s\n0,0,1,600\n1,10,8,60\n2,20,1,300\n3,30,1,30\n"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for name in carma.TRACES:
        (tmp_path / f"{name}.csv").write_text(CARMA)
    (tmp_path / carma.CATALOGUE).write_text(CATALOGUE)
    (tmp_path / philly.FILE).write_text(PHILLY)
    return tmp_path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parts with few and short jobs."""
    monkeypatch.setattr(table1, "UTILIZATIONS", (1.0, 0.5))
    monkeypatch.setattr(table1, "SIGMAS", (1.1,))
    monkeypatch.setattr(table1.run, "__defaults__", (8,))
    monkeypatch.setattr(sweeps, "UTILIZATIONS", (1.0, 0.3))
    monkeypatch.setattr(sweeps.run, "__defaults__", (8,))
    monkeypatch.setattr(inference.run, "__defaults__", (0.05, 42))


def reproduce(monkeypatch: pytest.MonkeyPatch, out: Path, *arguments: object) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["reproduce", "--seeds", "2", "--out", str(out), *map(str, arguments)])
    assert program.main() == 0
    data: dict[str, Any] = json.loads(out.read_text())
    return data


def test_a_run_is_stored_repeats_exactly_and_fills_the_page(
    traces: Path, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    data = reproduce(monkeypatch, first, "--traces", traces)
    assert reproduce(monkeypatch, second, "--traces", traces) == data
    assert first.with_suffix(".md").read_text() == second.with_suffix(".md").read_text()
    assert "| 42 |" in results.renewed(results.PAGE.read_text(), first)

    fifo = data["table1"]["variants"]["salus"]["policies"]["fifo"]
    assert fifo["makespan"]["median"] == pytest.approx(8 * 3.03, rel=0.05)
    assert data["table1"]["pack"]["utilization"]["1"]["gain"]["median"] <= 1.0
    assert data["sweeps"]["models"]["superres_128"]["gains"]["0.3"] > 2
    assert data["inference"]["devices_own_memory"] > 1
    assert (data["philly"]["jobs"], data["philly"]["single"]) == (4, 3)
    second = data["carma"]["traces"]["carma_t2"]
    assert (second["jobs"], second["exclusive"]["lost"]) == (3, 0)
    assert set(second["ways"]["CARMA"]["magm"]) == set(carma.ESTIMATORS)
    assert second["sensitivity"]["as assumed"]["CARMA"] == second["ways"]["CARMA"]["magm"]["oracle"]


@pytest.mark.parametrize("directory", [None, "empty"])
def test_traces_that_are_not_there_are_skipped_with_a_message(
    directory: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    data = program.trace_part("philly", tmp_path / directory if directory else None)
    assert data == {} and "skipped: --traces names no directory with philly_1000_jobs.csv" in capsys.readouterr().out
    assert all(text.startswith("Not run") for text in (philly.tables(data) | carma.tables(data)).values())


def test_the_page_shows_the_newest_stored_result() -> None:
    page = results.PAGE.read_text()
    assert results.renewed(page, results.newest()) == page, "run: python -m benchmarks.reproduce --docs"


def test_page_and_results_must_name_the_same_tables() -> None:
    assert fill("<!-- table a -->\nold\n<!-- end -->", {"a": "new"}) == "<!-- table a -->\n\nnew\n\n<!-- end -->"
    with pytest.raises(ValueError, match="'b'"):
        fill("<!-- table a -->\n<!-- end -->", {"b": "new"})


def test_carma_rows_become_jobs(traces: Path) -> None:
    first, second, third = read_carma(traces / "carma_t1.csv", 0.25)
    assert (first.duration_us, first.persistent, first.ephemeral) == (90_000_000, 1671 * MIB, 5013 * MIB)
    assert (second.gpus, third.submit_us, third.id) == (2, 45_500_000, "2-unet")
    assert 0 < persistent_share() < 0.5


def test_estimators_speak_of_tasks(traces: Path) -> None:
    """40000 MiB stands for no estimate, as an empty cell does."""
    first, second, third = read_carma(traces / "carma_t1.csv", 0.25, read_estimates(carma.catalogue(traces)))
    assert dict(first.estimates)["gpumemnet"] == 16000 * MIB
    assert [name for name, _ in first.estimates] == ["faketensor", "gpumemnet", "horus"]
    assert [name for name, _ in second.estimates] == ["horus"]
    assert third.estimates == ()


def test_the_catalogue_may_lie_beside_the_traces(tmp_path: Path) -> None:
    (tmp_path / "carma").mkdir()
    (tmp_path / "carma" / carma.CATALOGUE).write_text(CATALOGUE)
    assert carma.catalogue(tmp_path / "traces").exists()


def test_tasks_are_light_heavy_or_between() -> None:
    tasks = ("resnet18_cifar100_20e_1", "dlrm", "vgg2", "resnet", "BERT_base", "maskrcnn")
    assert [assumed_utilization(task) for task in tasks] == [0.3, 0.3, 0.6, 0.6, 0.9, 0.9]


def test_only_one_part_is_run_again(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.loads(results.newest().read_text())
    data = reproduce(monkeypatch, tmp_path / "again.json", "--only", "philly", "--traces", traces)
    assert data["philly"]["jobs"] == 4
    assert data["table1"] == before["table1"]


def test_figures_of_the_paper_agree_with_each_other() -> None:
    assert SALUS_TABLE_1["fifo"][2] / SALUS_TABLE_1["srtf"][2] == pytest.approx(SALUS_FIFO_OVER_SRTF, abs=0.01)


def test_spread_and_crossing() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "quartiles": [1.5, 2.5], "range": [1.0, 3.0]}
    assert spread([4.0])["quartiles"] == [4.0, 4.0]
    assert crossing([(1.0, -1.0), (0.5, -2.0)], -1.5) == 0.75
    assert crossing([(1.0, -1.0), (0.5, -2.0)], -3.0) is None
