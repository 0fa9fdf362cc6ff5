"""Installing Carpool from its source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_compiler_is_one_line(tmp_path: Path) -> None:
    """What pip shows of the build is a line that says what to do, without the stack of the build."""
    (nothing := tmp_path / "bin").mkdir()
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation"]
    env = {name: value for name, value in os.environ.items() if name != "CC"} | {"PATH": str(nothing)}
    done = subprocess.run(
        [*command, "--target", tmp_path, ROOT], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "C compiler" in line]
    assert "Install one (Debian: apt-get install gcc libc6-dev), set CC, or take a wheel, which needs none." in line
    assert "[1 lines of output]" in done.stderr and "Traceback" not in done.stderr
