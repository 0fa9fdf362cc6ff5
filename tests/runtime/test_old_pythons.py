"""Pythons that are older than Carpool's hooks: their jobs start silently, and those that want torch say so once."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.runtime import launch

if TYPE_CHECKING:
    from tests.runtime.conftest import Job

#: `tests/lean` is for newer ones.
pytestmark = pytest.mark.usefixtures("whole_torch")
SITE = launch.site_directory()
TOO_OLD = ("2.7", "3.6", "3.7")
STATE = "import sys; print((sys.path, sorted(set(sys.modules) - {'__future__'})))"


def interpreter(version: str) -> str:
    """That of the machine, or one of pyenv's.  A wrapper that finds none, as pyenv's without a choice, is none."""
    kept = sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for python in filter(None, [*kept, shutil.which(f"python{version}")]):
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip(f"there is no Python {version} here")


def alone(job: Job, python: str) -> subprocess.CompletedProcess[str]:
    """The same script outside of jobs."""
    env = {name: value for name, value in job.env.items() if name not in ("PYTHONPATH", "LD_PRELOAD")}
    command = [python, str(job.directory / "script.py")]
    return subprocess.run(command, env=env, cwd=job.directory, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(params=TOO_OLD)
def old(request: pytest.FixtureRequest) -> str:
    return interpreter(request.param)


@pytest.mark.parametrize("version", [*TOO_OLD, "3.8", "3.9", "3.10", "3.12", "3.13"])
def test_a_start_is_silent(job: Job, version: str) -> None:
    python = interpreter(version)
    done = job.run(STATE, python=python)
    assert (done.out, done.err, done.code) == (alone(job, python).stdout, "", 0)


def test_torch_is_one_warning(job: Job, old: str) -> None:
    (job.directory / "torch.py").write_text("print('torch')\n")
    done = job.run("import json, torch, torch; print('script')", python=old)
    assert (done.out, done.calls, done.err.count("\n")) == ("torch\nscript\n", [], 1)
    assert "is older than 3.8; this process runs without Carpool" in done.err


def test_a_plain_process_says_nothing(job: Job, old: str) -> None:
    (job.directory / "torch.py").touch()
    done = job.run("import torch; print('fine')", python=old, CARPOOL_DISABLE="1")
    assert (done.out, done.err) == ("fine\n", "")


def test_another_sitecustomize_still_runs(job: Job, old: str) -> None:
    other = job.directory / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys\nsys.other = __name__\n")
    done = job.run("import sys; print(sys.other)", python=old, PYTHONPATH=f"{SITE}:{other}")
    assert (done.out, done.err) == ("sitecustomize\n", "")


@pytest.mark.parametrize("name", ["sitecustomize.py", "_carpool_old_python.py"])
def test_no_newer_syntax_is_used(name: str) -> None:
    """Where no old Python is installed."""
    nodes = list(ast.walk(ast.parse((SITE / name).read_text(), feature_version=(3, 7))))
    assert not [node for node in nodes if isinstance(node, (ast.JoinedStr, ast.AnnAssign))]
    assert not [node for node in nodes if getattr(node, "annotation", None) or getattr(node, "returns", None)]
