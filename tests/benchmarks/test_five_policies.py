"""Five jobs under a policy, made short: real daemon, real jobs, and the verdict in both directions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.five_policies.__main__ import changed_weights
from benchmarks.five_policies.results import JobResult, Round
from tests.tiers import all_but_first

ALL_JOBS = "gpt,resnet,cnn,vae,mlp"


def saved(path: Path, value: float) -> Path:
    import torch

    path.parent.mkdir(exist_ok=True)
    torch.save({"w": torch.tensor([value])}, path)
    return path


def test_the_verdict_names_the_job_and_the_round_that_differ(tmp_path: Path) -> None:
    def job(where: str, name: str, value: float) -> JobResult:
        return JobResult(name, 1.0, 0.0, saved(tmp_path / where / f"{name}.pt", value))

    alone = Round("one by one", (job("alone", "gpt", 1.0), job("alone", "cnn", 2.0)), 1.0)
    same = Round("fifo", (job("fifo", "gpt", 1.0), job("fifo", "cnn", 2.0)), 1.0)
    other = Round("fair", (job("fair", "gpt", 1.0), job("fair", "cnn", 2.0000002)), 1.0)
    assert changed_weights([alone, same]) == []
    assert changed_weights([alone, same, other]) == ["cnn under fair: 1 tensors differ, first w"]


@pytest.mark.parametrize(
    ("scale", "jobs"), all_but_first([("0.01", "cnn,mlp"), ("0.01", ALL_JOBS), ("0.25", ALL_JOBS)])
)
def test_a_short_round_runs_and_draws(root: Path, python: str, tmp_path: Path, scale: str, jobs: str) -> None:
    options = ["--scale", scale, "--jobs", jobs, "--policies", "fair", "--out", str(tmp_path)]
    command = [python, "-m", "benchmarks.five_policies", *options]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=390, check=False)
    assert result.returncode == 0, result.stderr[-3000:] + result.stdout[-3000:]
    assert f"all {len(jobs.split(','))} shared runs are bit-identical" in result.stdout
    assert (tmp_path / "report.txt").read_text().count("fair") == 2
    ElementTree.parse(tmp_path / "timeline.svg")
