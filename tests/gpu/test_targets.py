"""The targets that people type on the machine with the GPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: In the place of Python: writes down what is asked of `tests.gpu`, and fails at one of these.
PYTHON = '#!/bin/sh\necho "$3" >> "$0.asked"\ntest "$3" != {failing}\n'


@pytest.mark.parametrize(("failing", "succeeds"), [("lease", False), ("check", False), ("nothing", True)])
def test_all_checks_run_whatever_the_lease_has_found(failing: str, succeeds: bool, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON.format(failing=failing))
    python.chmod(0o700)
    command = ["make", "--old-file=native", "gpu-check", f"PYTHON={python}"]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert python.with_suffix(".asked").read_text().split() == ["lease", "check"], done.stderr
    assert (done.returncode == 0) == succeeds
