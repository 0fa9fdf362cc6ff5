"""The example scripts: plain PyTorch, and deterministic without Carpool (else no comparison would mean anything)."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.five_policies.weights import differences
from tests.live import BARE_SERVER
from tools.demo.jobs import JOBS, environment

SCRIPTS = sorted(job.name for job in JOBS)


def test_there_are_five_kinds_of_jobs() -> None:
    assert {"cnn", "vae", "gpt", "mlp", "resnet"} <= set(SCRIPTS)


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[2].glob("docs/examples/*.py")), ids=lambda path: path.name
)
def test_examples_do_not_know_carpool(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert not [name for name in imported if name.split(".")[0] == "carpool"]


@pytest.fixture(scope="module")
def bare(python: str) -> Iterator[subprocess.Popen[str]]:
    """Runs scripts, each in a fork: five times two interpreters that import PyTorch would take ten times as long."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 1, "text": True}
    with subprocess.Popen([python, str(BARE_SERVER)], env=environment(), **pipes) as server:  # type: ignore[call-overload]
        yield server


@pytest.mark.parametrize("name", SCRIPTS)
def test_two_runs_alone_end_with_the_same_weights(
    name: str, bare: subprocess.Popen[str], root: Path, tmp_path: Path
) -> None:
    runs = [tmp_path / "first.pt", tmp_path / "second.pt"]
    for run in runs:
        command = [str(root / "docs" / "examples" / f"{name}.py"), "--iterations", "2", "--save", str(run)]
        print(json.dumps([str(tmp_path / "log"), *command]), file=bare.stdin)
        assert bare.stdout.readline() == "0\n", (tmp_path / "log").read_text()
    assert differences(*runs) == []
