"""The library alone, with real training scripts and a stand-in for the daemon: results must be bit for bit the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live import python_path
from tests.native.arbiter import ROOT, Arbiter, Job
from tests.tiers import all_but_first

WORKLOADS = ROOT / "tests" / "workloads"
SITE = ROOT / "src" / "carpool" / "runtime" / "site"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def command(script: str, out: Path) -> list[str]:
    """``script``: a workload's file name, and what follows its result file on its command line."""
    name, *arguments = script.split()
    return [str(WORKLOADS / name), str(out), *arguments]


def bare(script: str, out: Path) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("CARPOOL_")} | THREADS | {"PYTHONPATH": ""}
    subprocess.run([sys.executable, *command(script, out)], env=env, check=True, timeout=120)
    return json.dumps(json.loads(out.read_text()), sort_keys=True)


def shared(scripts: list[str], directory: Path, **options: object) -> tuple[list[str], Arbiter]:
    arbiter = Arbiter(**options)  # type: ignore[arg-type]
    try:
        outs = [directory / f"shared{i}.json" for i in range(len(scripts))]
        for script, out in zip(scripts, outs, strict=True):
            env = THREADS | {"PYTHONPATH": python_path(SITE, ROOT / "src")}
            arbiter.start(command(script, out), env)
        assert arbiter.run(150) == [0] * len(scripts)
        return [json.dumps(json.loads(out.read_text()), sort_keys=True) for out in outs], arbiter
    finally:
        arbiter.close()


def overlapping(script: str, directory: Path, seen: Callable[[Job], bool], **options: object) -> None:
    """Two jobs of one script end with the results of a run alone, and ``seen`` holds for both.

    The scripts are short: if one is still importing while the other computes, they hardly meet, and we try again.
    """
    alone = bare(script, directory / "bare.json")
    for _ in range(5):
        results, arbiter = shared([script, script], directory, **options)
        assert results == [alone, alone]
        if all(seen(job) for job in arbiter.jobs):
            return
    pytest.fail(f"not seen in any run: {[(job.seat.get('turns'), job.packets) for job in arbiter.jobs]}")


def test_turns_at_every_iteration(tmp_path: Path) -> None:
    overlapping("adam.py", tmp_path, lambda job: job.seat.get("turns") > 10)


def test_turns_taken_at_random_instructions(tmp_path: Path) -> None:
    overlapping("sgd.py", tmp_path, lambda job: job.seat.get("forced") > 5, forced_us=7_000, always_yield=False)


@pytest.mark.parametrize("script", all_but_first(["ema.py", "lbfgs.py", "cache.py"]))
def test_what_outlives_iterations_becomes_persistent(tmp_path: Path, script: str) -> None:
    def placed(job: Job) -> bool:
        return job.seat.get("promoted") > 0 or job.seat.get("p_peak") > 2 << 20  # moved, or put there at once

    overlapping(script, tmp_path, placed)


# ---- oversubscription: offloaded after every turn, the bank overwritten ----------------------------------------------

#: All workloads that end by themselves with the same result in every run, four at a time on one lane; two before.
TOGETHER = [
    ["adam.py", "cache.py"],
    ["accumulation.py", "adam.py", "cache.py", "checkpoints.py"],
    ["ema.py", "evaluation.py", "exception.py", "gan.py"],
    ["grad_scaler.py", "lbfgs.py", "loader.py fork", "fork_child.py"],
    ["two_models.py", "unusual.py", "zero_grad.py keep", "sgd.py"],
]


def all_come_back(names: list[str], directory: Path, **options: object) -> None:
    alone = [bare(name, directory / "alone.json") for name in names]
    results, arbiter = shared(names, directory, oversubscribed=True, **options)
    assert results == alone
    assert all(job.seat.get("out_bytes") >= job.seat.get("in_bytes") > 0 for job in arbiter.jobs if job.offloads > 1)
    assert sum(job.offloads for job in arbiter.jobs) > 8


@pytest.mark.parametrize("names", all_but_first(TOGETHER), ids=lambda names: names[0])
def test_offloaded_at_every_switch(tmp_path: Path, names: list[str]) -> None:
    all_come_back(names, tmp_path)


@pytest.mark.parametrize("names", all_but_first(TOGETHER), ids=lambda names: names[0])
def test_offloaded_at_random_instructions(tmp_path: Path, names: list[str]) -> None:
    all_come_back(names, tmp_path, forced_us=9_000, always_yield=False)
