"""Each check in a process of its own, so that one that hangs or poisons its context takes no other with it."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field

from tests.gpu import checks, measurements
from tests.gpu.registry import CHECKS, Check, Figures, Skip

TIMEOUT_S = 400.0
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    title: str
    outcome: str
    text: str = ""  # why it failed or was skipped
    figures: Figures = field(default_factory=dict)
    seconds: float = 0.0


def load() -> dict[str, Check]:
    """Everything there is, in the order of the modules' names."""
    for package in (checks, measurements):
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return CHECKS


def run_here(one: Check) -> Result:
    begin = time.monotonic()
    try:
        figures = one.function() or {}
    except Skip as reason:
        return Result(one.name, one.title, SKIPPED, str(reason))
    except BaseException:  # noqa: BLE001 - whatever happens belongs into the table
        return Result(one.name, one.title, FAILED, traceback.format_exc(limit=-3).strip())
    return Result(one.name, one.title, PASSED, figures=figures, seconds=round(time.monotonic() - begin, 2))


def run_apart(one: Check) -> Result:
    command = [sys.executable, "-m", "tests.gpu", "one", one.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Result(one.name, one.title, FAILED, f"no end after {TIMEOUT_S:.0f} s")
    lines = done.stdout.strip().splitlines()
    try:
        return Result(**json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError):
        return Result(one.name, one.title, FAILED, f"exit status {done.returncode}: {done.stderr.strip()[-800:]}")


def as_json(result: Result) -> str:
    return json.dumps(asdict(result))
