"""60 real training jobs that arrive as in CARMA's first trace, on three host devices: shared, and one job per device.

The trace (``CARPOOL_TRACES``) gives arrivals, lengths, devices and memory; times are scaled so that it takes minutes.
The jobs are real, their lengths are not those of the paper's tasks: each waits for its data in every iteration and then
trains one step.  On two cores that is what there is to gain by collocation; pure computing is not.  A job that is lost,
or computes something else beside others, fails the benchmark.

Three "devices" have the cores of one machine between them.  So a job computes for a twelfth of its time only, which
lets six run on each of them before two cores are full, and lasts long enough for the import of PyTorch, which costs the
same on both sides, not to be most of what is measured.
"""

from __future__ import annotations

import csv
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Skipped, measured_once
from benchmarks.jobs import argv, result_of, submit
from carpool.protocol.api import JobInfo
from tools.demo.session import Session

TRACE = "carma_t1.csv"
DEVICES, DEVICE_MIB = 3, 128
#: A device of 40 GB becomes one of 128 MiB, a minute alone becomes so many seconds, and so does one between arrivals.
MEMORY_SCALE = 400
SECONDS_PER_MINUTE = 0.5
#: One iteration: a wait for data, and about 5 ms of one core.
WAIT_MS, STEP_MS = 60.0, 5.0
QUICK = 12
TARGET = 0.65
#: Jobs side by side, each in a lane of its own, as CARMA has them.
POLICY = "pack"
WAYS = {"exclusive": "exclusive", "shared": "magm"}


@dataclass(frozen=True, slots=True)
class Task:
    at_s: float
    gpus: int
    mib: int
    iterations: int

    def command(self) -> list[str]:
        return argv("loader.py", self.mib, self.iterations, WAIT_MS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds from the first submission to the last end, and of each job from its submission to its end."""

    makespan_s: float
    jct_s: Sequence[float]
    checksums: Sequence[str]
    attempts: int


def run(quick: bool) -> list[Figure]:
    tasks = read_tasks()[: QUICK if quick else None]
    found = {name: _live(tasks, placement) for name, placement in WAYS.items()}
    alone, shared = found["exclusive"], found["shared"]
    if list(alone.checksums) != list(shared.checksums):
        raise RuntimeError("a job has computed something else beside others than alone")
    scale = {"seconds_per_minute": SECONDS_PER_MINUTE, "wait_ms": WAIT_MS}
    detail: dict[str, Any] = {**scale, "jobs": len(tasks), "load_after": round(os.getloadavg()[0], 1)}
    for name, each in found.items():
        detail |= {f"{name}_makespan_s": round(each.makespan_s, 1), f"{name}_p95_jct_s": round(p95(each.jct_s), 1)}
        detail |= {f"{name}_mean_jct_s": round(statistics.mean(each.jct_s), 1), f"{name}_attempts": each.attempts}
    return [
        measured_once("collocation", "makespan of CARMA's arrivals on three host devices, shared / exclusive", "ratio",
                      shared.makespan_s / alone.makespan_s, target=TARGET, **detail),
        measured_once("collocation", "the same, 95th percentile of the completion time", "ratio",
                      p95(shared.jct_s) / p95(alone.jct_s)),
    ]  # fmt: skip


def read_tasks() -> list[Task]:
    directory = os.environ.get("CARPOOL_TRACES")
    path = Path(directory) / TRACE if directory else None
    if path is None or not path.exists():
        raise Skipped(f"CARPOOL_TRACES names no directory with {TRACE}")
    with path.open(encoding="utf-8", newline="") as file:
        return [_task(row) for row in csv.DictReader(file)]


def _task(row: dict[str, str]) -> Task:
    alone_s = float(row["solo_minutes"]) * SECONDS_PER_MINUTE
    return Task(
        at_s=float(row["submit_s"]) / 60 * SECONDS_PER_MINUTE,
        gpus=int(row["gpus"]),
        mib=max(1, round(float(row["mem_mib"]) / MEMORY_SCALE)),
        iterations=max(1, round(alone_s * 1000 / (WAIT_MS + STEP_MS))),
    )


def _live(tasks: Sequence[Task], placement: str) -> Outcome:
    devices = [f"host:{DEVICE_MIB}MiB"] * DEVICES
    with (
        tempfile.TemporaryDirectory() as directory,
        Session(Path(directory), devices, POLICY, placement=placement) as client,
    ):
        begin, jobs = time.monotonic(), []
        for task in tasks:
            time.sleep(max(0.0, begin + task.at_s - time.monotonic()))
            jobs.append(submit(client, task.command(), gpus=task.gpus))
        ended = [result_of(client, job) for job in jobs]
    return _outcome([info for info, _ in ended], [result["checksum"] for _, result in ended])


def _outcome(infos: Sequence[JobInfo], checksums: Sequence[str]) -> Outcome:
    first = min(info.submitted_us for info in infos)
    ends = [info.ended_us or 0 for info in infos]
    jct_s = [(end - info.submitted_us) / 1e6 for info, end in zip(infos, ends, strict=True)]
    return Outcome((max(ends) - first) / 1e6, jct_s, checksums, sum(info.attempt for info in infos))


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
