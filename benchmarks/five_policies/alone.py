"""The jobs one after another, as plain processes without Carpool: the baseline and the reference weights."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.five_policies.results import JobResult, Round
from tools.demo.jobs import JOBS, ROOT, DemoJob, environment
from tools.demo.running import JobFailed


def run_alone(directory: Path, scale: float, jobs: Sequence[DemoJob] = JOBS) -> Round:
    """All jobs are there from the start, and each waits until the one before it has ended.  Raises JobFailed."""
    directory.mkdir(parents=True)
    begin = time.monotonic()
    results = []
    for job in jobs:
        weights, log = directory / f"{job.name}.pt", directory / f"{job.name}.log"
        started = time.monotonic()
        with log.open("wb") as output:
            status = subprocess.run(
                job.argv(weights, scale), cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, check=False,
            ).returncode  # fmt: skip
        if status != 0:
            raise JobFailed(f"{job.name} alone ended with status {status}:\n{log.read_text()[-2000:]}")
        ended = time.monotonic()
        results.append(JobResult(job.name, ended - begin, started - begin, weights))
    return Round("one by one", tuple(results), time.monotonic() - begin)
