"""Processes that share one copy of the weights, and die in the middle of bringing it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.live import python_path
from tests.tiers import all_but_first


@pytest.mark.parametrize("name", all_but_first(["recurrent", "residual"]))
def test_killed_in_every_group(name: str, python: str, root: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path(root / "src", root)}
    done = subprocess.run(
        [python, "-m", "tests.serve.killed", name],
        capture_output=True,
        text=True,
        env=environment,
        cwd=root,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["kills"]) == result["groups"] + 1
    for kill in result["kills"]:
        assert kill["there"] >= kill["group"], kill
        assert kill["right"] == [True, True, True], (kill, done.stderr)
