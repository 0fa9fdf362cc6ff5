"""The library alone, with real training scripts and a stand-in for the daemon: results must be bit for bit the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.arbiter import ROOT, Arbiter

WORKLOADS = ROOT / "tests" / "workloads"
SITE = ROOT / "src" / "carpool" / "runtime" / "site"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def bare(script: str, out: Path) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("CARPOOL_")} | THREADS
    subprocess.run([sys.executable, str(WORKLOADS / script), str(out)], env=env, check=True, timeout=120)
    return json.dumps(json.loads(out.read_text()), sort_keys=True)


def shared(scripts: list[str], directory: Path, **options: object) -> tuple[list[str], Arbiter]:
    arbiter = Arbiter(**options)  # type: ignore[arg-type]
    try:
        outs = [directory / f"shared{i}.json" for i in range(len(scripts))]
        for script, out in zip(scripts, outs, strict=True):
            env = THREADS | {"PYTHONPATH": f"{SITE}:{ROOT / 'src'}"}
            arbiter.start([str(WORKLOADS / script), str(out)], env)
        assert arbiter.run(150) == [0] * len(scripts)
        return [json.dumps(json.loads(out.read_text()), sort_keys=True) for out in outs], arbiter
    finally:
        arbiter.close()


def test_turns_at_every_iteration(tmp_path: Path) -> None:
    alone = bare("adam.py", tmp_path / "bare.json")
    results, arbiter = shared(["adam.py", "adam.py"], tmp_path)
    assert results == [alone, alone]
    assert all(job.seat.get("turns") > 10 for job in arbiter.jobs)


def test_turns_taken_at_random_instructions(tmp_path: Path) -> None:
    alone = bare("sgd.py", tmp_path / "bare.json")
    results, arbiter = shared(["sgd.py", "sgd.py"], tmp_path, forced_us=7_000, always_yield=False)
    assert results == [alone, alone]
    assert sum(job.seat.get("forced") for job in arbiter.jobs) > 10


@pytest.mark.parametrize("script", ["ema.py", "lbfgs.py", "cache.py"])
def test_what_outlives_iterations_becomes_persistent(tmp_path: Path, script: str) -> None:
    alone = bare(script, tmp_path / "bare.json")
    results, arbiter = shared([script, script], tmp_path)
    assert results == [alone, alone]
    for job in arbiter.jobs:
        assert job.seat.get("promoted") > 0 or job.seat.get("p_peak") > 2 << 20  # moved, or placed there at once
