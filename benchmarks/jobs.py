"""Running a benchmark's script plainly and as a Carpool job, with the same environment on both sides.

The scripts know nothing of Carpool.  The last line of their output is one JSON object with what they measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from carpool.protocol.api import JobInfo, SubmitRequest
from carpool.protocol.client import DaemonClient

WORKLOADS = Path(__file__).resolve().parent / "workloads"
TIMEOUT_S = 300


def environment(threads: int = 1) -> dict[str, str]:
    """Threads that never spin, as many on both sides of every comparison."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CARPOOL_")}
    count = str(threads)
    return {**inherited, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive"}


def argv(script: str, *arguments: object) -> list[str]:
    return [sys.executable, str(WORKLOADS / script), *map(str, arguments)]


def run_bare(command: list[str], preload: Path | None = None) -> dict[str, Any]:
    """``preload``: with libcarpool in the process, but not attached to any daemon."""
    env = environment() | ({"LD_PRELOAD": str(preload)} if preload else {})
    result = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(f"{command} ended with status {result.returncode}:\n{result.stderr[-2000:]}")
    return last_line(result.stdout)


def submit(client: DaemonClient, command: list[str], **options: Any) -> int:
    return client.submit(SubmitRequest(argv=command, cwd=str(WORKLOADS), env=environment(), **options))


def result_of(client: DaemonClient, job: int) -> tuple[JobInfo, dict[str, Any]]:
    """Wait for the job; its description and what its script measured."""
    info, output = output_of(client, job)
    return info, last_line(output)


def output_of(client: DaemonClient, job: int) -> tuple[JobInfo, str]:
    """Wait for the job; its description and what it has printed.  Raises RuntimeError if it has failed."""
    info = client.wait(job, TIMEOUT_S)
    output = b"".join(client.logs(job)).decode(errors="replace")
    if info.outcome != "succeeded":
        reason = info.reason.text if info.reason else f"exit code {info.exit_code}, signal {info.signal}"
        raise RuntimeError(f"job {job} {info.outcome or info.phase}: {reason}\n{output[-2000:]}")
    return info, output


def run_shared(client: DaemonClient, command: list[str]) -> dict[str, Any]:
    return result_of(client, submit(client, command))[1]


def last_line(output: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return value
