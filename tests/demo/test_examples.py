"""The example scripts: plain PyTorch, and deterministic without Carpool (else no comparison would mean anything)."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from benchmarks.five_policies.weights import differences
from demo.jobs import JOBS, environment

SCRIPTS = sorted(job.name for job in JOBS)


def test_there_are_five_kinds_of_jobs() -> None:
    assert {"cnn", "vae", "gpt", "mlp", "resnet"} <= set(SCRIPTS)


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("examples/*.py")), ids=lambda path: path.name)
def test_examples_do_not_know_carpool(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert not [name for name in imported if name.split(".")[0] == "carpool"]


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches",
    stays="tests/benchmarks/test_five_policies.py::test_a_short_round_runs_and_draws",
)
@pytest.mark.parametrize("name", SCRIPTS)
def test_two_runs_alone_end_with_the_same_weights(name: str, root: Path, python: str, tmp_path: Path) -> None:
    runs = [tmp_path / "first.pt", tmp_path / "second.pt"]
    commands = [
        [python, str(root / "examples" / f"{name}.py"), "--iterations", "2", "--save", str(run)] for run in runs
    ]
    started = [subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) for command in commands]
    assert [process.wait(100) for process in started] == [0, 0]
    assert differences(*runs) == []
