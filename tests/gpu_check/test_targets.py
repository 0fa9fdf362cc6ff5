"""The targets that people type on the machine with the GPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: In the place of Python: writes down what is asked of `tools.gpu_check`, and fails at one of these.
PYTHON = '#!/bin/sh\necho "$3" >> "$0.asked"\ntest "$3" != {failing}\n'


@pytest.mark.parametrize(("failing", "succeeds"), [("lease", False), ("check", False), ("nothing", True)])
def test_all_checks_run_whatever_the_lease_has_found(failing: str, succeeds: bool, tmp_path: Path) -> None:
    status, asked = make(tmp_path, failing, "--old-file=native", "gpu-check")
    assert (asked, status == 0) == (["lease", "check"], succeeds)


def test_a_lease_begins_where_libcarpool_cannot_be_built(tmp_path: Path) -> None:
    assert make(tmp_path, '""', "gpu-lease", f"LIBRARY={tmp_path / 'missing'}") == (0, ["", "lease"])


def make(directory: Path, failing: str, *arguments: str) -> tuple[int, list[str]]:
    """Its exit status, and what was asked of Python, "" for other things than `tools.gpu_check`."""
    python = directory / "python"
    python.write_text(PYTHON.format(failing=failing))
    python.chmod(0o700)
    command, environment = ["make", *arguments, f"PYTHON={python}"], {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, python.with_suffix(".asked").read_text().splitlines()
