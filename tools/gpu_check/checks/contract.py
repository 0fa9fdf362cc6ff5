"""The contract that every kind of device fulfils, and that the host device passes in CI."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from tools.gpu_check.registry import Figures, Skip, check, require

ROOT = Path(__file__).resolve().parents[3]
NEEDED = ("pytest", "msgspec")
PYTEST = [
    "-q",
    "-p",
    "no:cacheprovider",
    "--noconftest",
    "--import-mode=importlib",
    "-o",
    "addopts=",
    "-o",
    "timeout=0",
]


@check("the contract suite of devices")
def contract_suite() -> Figures:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Skip(f"the suite needs {', '.join(missing)}: python3 -m pip install {' '.join(missing)}")
    command = [sys.executable, "-m", "pytest", *PYTEST, "tools/gpu_check/contract.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    require(
        done.returncode == 0, f"pytest ended with status {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-500:]}"
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    require(passed is not None, f"nothing was tested:\n{done.stdout[-500:]}")
    assert passed is not None
    return {"tests": float(passed[1])}
