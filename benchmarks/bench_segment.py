"""A segment for PyTorch's allocator from the arena, against the driver's own `cuMemAlloc`; on the stub driver."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, median_figure
from benchmarks.jobs import TIMEOUT_S, WORKLOADS, argv, environment, last_line, result_of
from benchmarks.stub import stub_driver
from carpool.protocol.api import SubmitRequest
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

TARGET = 1.0


def run(quick: bool) -> list[Figure]:
    """By turns.  Both sides have the same few hundred nanoseconds of Python around it."""
    command = argv("segments.py", 11 if quick else 51)
    with (
        stub_driver() as stub,
        tempfile.TemporaryDirectory() as home,
        Session(Path(home), ["cuda:0:128MiB"], "fair") as client,
    ):
        env = environment() | {name: value for name, value in stub.items() if name.startswith("EMULATOR_STATE")}
        pairs = [(_bare(command, env), _granted(client, command, env)) for _ in range(2 if quick else 7)]
    ratios = [granted / bare for bare, granted in pairs]
    detail = {
        "bare_ns": round(statistics.median(bare for bare, _ in pairs), 1),
        "carpool_ns": round(statistics.median(granted for _, granted in pairs), 1),
    }
    name = "segment asked for and given back, arena / cuMemAlloc of the stub"
    return [median_figure("segment", name, "ratio", ratios, target=TARGET, detail=detail)]


def _bare(command: list[str], env: dict[str, str]) -> float:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return float(last_line(done.stdout)["ns"])


def _granted(client: DaemonClient, command: list[str], env: dict[str, str]) -> float:
    job = client.submit(SubmitRequest(argv=command, cwd=str(WORKLOADS), env=env))
    return float(result_of(client, job)[1]["ns"])
