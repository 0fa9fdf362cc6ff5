"""The benchmarks that are written in C and print one JSON object: ``src/native/bench/*.c``, built by ``make bench``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import Skipped

BUILT = Path(__file__).resolve().parent.parent / "src" / "native" / "bench" / "build"
TIMEOUT_S = 300


def run_program(name: str, *arguments: object, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """``env``: instead of this process' own environment.  Raises Skipped if it has not been built."""
    program = BUILT / name
    if not program.exists():
        raise Skipped(f"src/native/bench/{name}.c has not been built: run it through `make bench`")
    result = subprocess.run(
        [str(program), *map(str, arguments)], env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(f"{name} ended with status {result.returncode}:\n{result.stderr[-2000:]}")
    value: dict[str, Any] = json.loads(result.stdout)
    return value
