"""Training on made-up runs whose truth is known; the measured ones are not needed."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_estimators
from benchmarks.estimators import __main__ as command
from benchmarks.estimators import training
from benchmarks.estimators.boosting import Growth, grow
from benchmarks.estimators.calibrating import calibrate
from benchmarks.estimators.data import CATALOGUE, RUNS, NoData, Row, read, read_catalogue, sound
from benchmarks.estimators.judging import Judged, floor, hold_out, verdict
from benchmarks.estimators.training import content, split, train_level
from benchmarks.figures import Skipped
from carpool.core.model import MIB
from carpool.estimate.base import Features
from carpool.estimate.learned import parse

SMALL = Growth(rounds=30, depth=3, least=5, bins=16)


@pytest.fixture(autouse=True)
def _small_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The procedure is what is tested; it is the same with few trees."""
    for name in ("MIDDLE_GROWTH", "UPPER_GROWTH"):
        monkeypatch.setattr(training, name, replace(SMALL, rounds=12, least=8))


def row(model: str, batch: int, live: float, measured: float, weights: int = 0) -> Row:
    peak = round(live * MIB)
    layers = {"Conv2d": 10, "ReLU": 5}
    return Row(model, measured, Features(batch, weights, 0, weights, 0, peak, batch * 1000, peak, peak, layers))


def made_up(families: int, spread: float, seed: int = 1) -> list[Row]:
    """2,000 MiB and 1.2 times the live tensors, up to ``spread`` more or less; 20 runs for each family."""
    chance = random.Random(seed)
    rows = []
    for number in range(families):
        name = "".join(chr(ord("a") + int(digit)) for digit in f"{number:03}")
        for place in range(20):
            live = chance.uniform(200.0, 20_000.0)
            noise = 1.0 + chance.uniform(-spread, spread)
            rows.append(row(f"{name}_{place % 4}", 2 ** (3 + place % 5), live, (2000 + 1.2 * live) * noise, 50 * MIB))
    return rows


def test_trees_recover_a_step() -> None:
    seen = [[float(x), float(x % 7)] for x in range(200)]
    wanted = [1.0 if x < 100 else 3.0 for x in range(200)]
    found = grow(seen, wanted, 0.5, replace(SMALL, rounds=100))
    assert found.value([20.0, 3.0]) == pytest.approx(1.0, abs=0.05)
    assert found.value([180.0, 3.0]) == pytest.approx(3.0, abs=0.05)


def test_trees_for_a_quantile_have_that_share_below_them() -> None:
    chance = np.random.default_rng(0)
    seen = chance.uniform(0, 1, (2000, 1))
    wanted = seen[:, 0] + chance.uniform(0, 1 + seen[:, 0])
    found = grow(seen.tolist(), wanted.tolist(), 0.9, SMALL)
    below = [goal <= found.value(each) for each, goal in zip(seen.tolist(), wanted.tolist(), strict=True)]
    assert sum(below) / len(below) == pytest.approx(0.9, abs=0.03)
    assert found.value([0.95]) - 0.95 > found.value([0.05]) - 0.05 + 0.4  # wider where there is more spread


def test_nothing_can_be_learned_from_no_rows() -> None:
    with pytest.raises(ValueError, match="no rows"):
        grow([], [], 0.5, SMALL)


@pytest.mark.parametrize("level", ["peaks", "parameters", "layers"])
def test_training_twice_gives_the_same_bytes(level: str) -> None:
    first, second = (json.dumps(content({level: train_level(made_up(12, 0.1), level)}, "made up")) for _ in range(2))
    assert first == second


def test_what_was_trained_can_be_read_again(tmp_path: Path) -> None:
    rows = made_up(12, 0.1)
    again = parse(command.learned(rows))
    assert again["layers"] == train_level(rows, "layers")


def test_training_recovers_the_truth_without_noise() -> None:
    level = train_level(made_up(30, 0.0), "peaks")
    assert level.coefficients == pytest.approx((2000.0, 1.2, 0.0), rel=1e-3)
    _, point, high = level.mib(row("new", 32, 5000.0, 0.0).features, "peaks")
    assert point == pytest.approx(8000.0, rel=0.01) and high == pytest.approx(8000.0, rel=0.02)


def test_the_margin_covers_families_that_were_not_seen() -> None:
    found = verdict(hold_out(made_up(60, 0.2), "peaks", lambda each: each.family, 4))
    assert found.under <= 0.07
    assert 0.08 < found.error < 0.13  # 0.1 is the mean of the noise
    assert found.point_under == pytest.approx(0.5, abs=0.08)


def test_a_group_is_held_out_as_a_whole_and_each_row_once() -> None:
    rows = made_up(9, 0.1)
    held = []
    for others, held_out in split(rows, 4, lambda each: each.family):
        assert {each.family for each in others}.isdisjoint({each.family for each in held_out})
        assert len(others) + len(held_out) == len(rows)
        held += held_out
    assert sorted(map(id, held)) == sorted(map(id, rows))


def test_runs_that_read_less_than_their_live_tensors_are_not_learned_from() -> None:
    crashed = [row("a_1", 8, 1000, 2100), row("a_1", 16, 2000, 2110), row("a_1", 32, 4000, 2110)]
    good = [row("b_1", 8, 1000, 2100), row("b_1", 32, 4000, 7000)]
    partly = [row("c_1", 8, 1000, 3500), row("c_1", 64, 8000, 2500)]
    assert sound([*crashed, *good, *partly]) == [*good, partly[0]]
    assert floor([*crashed[2:], *good]) == pytest.approx((4000 / 2110 - 1) / 3)


def test_a_verdict_counts_what_it_says() -> None:
    rows = [row("a", 8, 1000, 2000), row("b", 8, 1000, 1000)]
    found = verdict([Judged(rows[0], 0, 1800, 1900), Judged(rows[1], 0, 1500, 2000)])
    assert (found.rows, found.error, found.under, found.point_under) == (2, pytest.approx(0.3), 0.5, 0.5)
    assert found.overshoot_gb == pytest.approx(1000 * MIB / 1e9 / 2)
    assert Judged(rows[0], 0, 50_000, 60_000).capped().high == 40_960


def test_families_are_told_by_their_names() -> None:
    names = ["tf_efficientnet_b0", "vit_base_patch16", "resnet50", "legacy_seresnet18", "007net"]
    assert [row(name, 8, 1, 1).family for name in names] == ["efficientnet", "vit", "resnet", "seresnet", "007net"]


def test_ratios_of_few_tasks_give_their_extremes() -> None:
    found = calibrate([(float(n), 10.0) for n in range(1, 6)])
    assert (found["low"], found["middle"], found["high"]) == (0.1, 0.3, 0.5)
    assert calibrate([(float(n), 100.0) for n in range(1, 100)])["high"] == 0.95
    with pytest.raises(ValueError, match="no tasks"):
        calibrate([])


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def test_measured_runs_are_read_without_crashed_ones(tmp_path: Path) -> None:
    columns = (
        "model,batch_size,measured_max_gpu_mem_MiB,faketensor_after_forward_MiB,faketensor_after_backward_MiB,clean"
    )
    runs = ["resnet50,8,3000,1000,1010.5,True", "resnet50,16,300,2000,2010,False", "mine,8,3000,1000,1010,True"]
    write(tmp_path / RUNS, [columns, *runs])
    known, unknown = read(tmp_path)
    assert (known.measured, known.live, known.features.batch_size) == (3000.0, 1010.5, 8)
    assert known.features.parameter_bytes == 102_228_128 and known.features.layers["Conv"] == 53
    assert math.isclose(unknown.live, 1010.0) and unknown.features.parameter_bytes == 0


def test_tasks_are_read_without_repetitions_and_gaps(tmp_path: Path) -> None:
    columns = "task,model_summary,batch_size,oracle_mem_mib,horus_mib"
    write(tmp_path / CATALOGUE, [columns, "a,m,8,100,200", "a2,m,8,100,200", "b,n,8,100,40000", "c,o,8,,"])
    assert read_catalogue(tmp_path) == [(100.0, 200.0)]


def test_without_data_everybody_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wanted in (read, read_catalogue):
        with pytest.raises(NoData, match="give --data DIR"):
            wanted(tmp_path)
    monkeypatch.delenv("CARPOOL_ESTIMATES", raising=False)
    with pytest.raises(Skipped, match="CARPOOL_ESTIMATES"):
        bench_estimators.run(quick=True)
    with pytest.raises(SystemExit):
        command.main(["--data", str(tmp_path)])
    assert "give --data DIR" in capsys.readouterr().err


def test_a_check_writes_nothing_and_sees_a_difference(tmp_path: Path) -> None:
    (tmp_path / "learned.json").write_text("{}\n")
    assert command._check({"learned.json": "{}\n"}, tmp_path) == 0
    assert command._check({"learned.json": "[]\n"}, tmp_path) == 1
    assert (tmp_path / "learned.json").read_text() == "{}\n"
