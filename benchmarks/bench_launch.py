"""What the gate adds to a launch, turn held, against the same launch beside the gate; on the stub driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Skipped, median_figure
from benchmarks.programs import BUILT, TIMEOUT_S

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "tests" / "stub" / "build.py"
LIBRARY = ROOT / "src" / "carpool" / "_native" / "libcarpool.so"
OVER_NS = 15.0


def run(quick: bool) -> list[Figure]:
    """Differences of nanoseconds: the stub's launch of an empty kernel is no measure of a real one's."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, str(STUB), directory], check=True, stdout=subprocess.DEVNULL)
        results = [_launches(Path(directory), 31 if quick else 201) for _ in range(2 if quick else 7)]
    detail = {"bare_ns": [r["bare_ns"] for r in results], "gated_ns": [r["gated_ns"] for r in results]}
    over = [r["over_ns"] for r in results]
    ratios = [r["gated_ns"] / r["bare_ns"] for r in results]
    loose = [r["over_unattached_ns"] for r in results]
    return [
        median_figure("launch", "gate, turn held: added to the bare call", "ns", over, target=OVER_NS, detail=detail),
        median_figure("launch", "gate, turn held: gated / bare call of the stub", "ratio", ratios),
        median_figure("launch", "gate of a process that has not attached: added to the bare call", "ns", loose),
    ]


def _launches(directory: Path, rounds: int) -> dict[str, float]:
    program = BUILT / "launch"
    if not program.exists() or not LIBRARY.exists():
        raise Skipped("native/bench/launch.c or libcarpool has not been built: run it through `make bench`")
    env = os.environ | {
        "LD_PRELOAD": str(LIBRARY),
        "LD_LIBRARY_PATH": str(directory),
        "CARPOOL_STUB": str(directory / "state"),
    }
    result = subprocess.run(
        [str(program), str(rounds)], env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(f"launch ended with status {result.returncode}:\n{result.stderr[-2000:]}")
    value: dict[str, float] = json.loads(result.stdout)
    return value
