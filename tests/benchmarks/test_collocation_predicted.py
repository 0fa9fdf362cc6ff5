"""The stored live run that a simulation is compared with, and the jobs of that simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench_collocation_predicted as predicted
from benchmarks.bench_collocation import SECONDS_PER_MINUTE, STEP_MS, WAIT_MS, Task
from benchmarks.figures import Skipped
from carpool.core.model import MIB

SCALE = {"seconds_per_minute": SECONDS_PER_MINUTE, "wait_ms": WAIT_MS}


def store(directory: Path, name: str, quick: bool, **detail: Any) -> None:
    figures = [{"benchmark": "lone", "detail": {}}, {"benchmark": "collocation", "detail": detail}]
    (directory / name).write_text(json.dumps({"quick": quick, "figures": figures}))


def test_the_newest_whole_run_at_this_scale_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicted, "RESULTS", tmp_path)
    store(tmp_path, "2026-01-01-a.json", False, jobs=1, **SCALE)
    store(tmp_path, "2026-01-02-a.json", False, jobs=2, **SCALE)
    store(tmp_path, "2026-01-03-a.json", True, jobs=3, **SCALE)
    store(tmp_path, "2026-01-04-a.json", False, jobs=4, **SCALE | {"wait_ms": WAIT_MS + 1})
    store(tmp_path, "2026-01-05-a.json", False, jobs=5)
    name, detail = predicted.newest_live()
    assert (name, detail["jobs"]) == ("2026-01-02-a.json", 2)


def test_without_one_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicted, "RESULTS", tmp_path)
    with pytest.raises(Skipped, match="no result of a whole run"):
        predicted.newest_live()


def test_a_job_alone_takes_its_start_and_its_iterations() -> None:
    job = predicted.modelled(7, Task(at_s=1.5, gpus=1, mib=10, iterations=100), 2_000_000)
    assert (job.submit_us, job.startup_us, job.persistent // MIB) == (1_500_000, 2_000_000, 11)
    assert predicted.makespan_s([job], "magm") == pytest.approx(1.5 + 2 + 100 * (WAIT_MS + STEP_MS) / 1000, abs=0.1)
