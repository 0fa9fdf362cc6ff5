"""The simulator's input: the daemon's journal if this process may read it, else jobs that the daemon shows.

Either way the devices, the policy and the settings are the daemon's present ones.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from carpool.dashboard.simulator import WhatIfError
from carpool.protocol.api import DeviceList, ErrorBody, JobInfo, JobList, PolicyInfo
from carpool.protocol.display import escaped
from carpool.protocol.paths import Home

MOST_JOBS = 20_000
PAGE = 1000
MIB = 1 << 20
WORKER = "model worker"  # the name that `carpool serve` gives to workers, which last as long as requests come
COLUMNS = (
    *("job_id", "submit_s", "gpus", "duration_s", "iterations", "persistent_mib", "ephemeral_mib"),
    *("model", "weight", "owner"),
)
SHOWN = (
    "this user may not read the daemon's journal, so the jobs are those that the daemon shows this user: others' jobs"
    " may be left out, and the time that each job took to start counts as none"
)
NO_JOBS = "no job that was submitted in that time, and that this user may see, has run and ended"
ENGINES = "engines are left out: when they had requests is in the journal only"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PastJobs:
    """``source``: options of `carpool simulate`.  ``notes``: about what is left out."""

    source: Sequence[str]
    policy: PolicyInfo
    devices: DeviceList
    notes: Sequence[str] = ()


async def past_jobs(home: Home, hours: float, directory: Path) -> PastJobs:
    """Return the jobs of the last ``hours``.  ``directory``: for files.  Raises WhatIfError."""
    connector = aiohttp.UnixConnector(path=str(home.socket))
    async with aiohttp.ClientSession("http://localhost", connector=connector) as session:
        try:
            policy, devices = (
                await _get(session, "/v1/policy", PolicyInfo),
                await _get(session, "/v1/devices", DeviceList),
            )
            if os.access(home.journal, os.R_OK):
                source = [f"--from-journal={home.journal}", f"--since={hours * 3600:.3f}s"]
                return PastJobs(source, policy, devices)
            jobs = await _ended(session, time.time_ns() // 1000 - int(hours * 3_600_000_000))
        except aiohttp.ClientError as error:
            text = f"the daemon of {home.root} does not answer: {error}"
            raise WhatIfError(502, "daemon_away", text, "carpool up starts one") from None
    trace = directory / "jobs.csv"
    trained = [job for job in jobs if not job.engine]
    if not trained:
        raise WhatIfError(409, "no_jobs", NO_JOBS, "ask for more hours")
    _write(trace, trained)
    return PastJobs([str(trace)], policy, devices, [SHOWN, *([ENGINES] if len(trained) < len(jobs) else [])])


async def _get(session: aiohttp.ClientSession, path: str, kind: type[T], **query: str) -> T:
    """Return a decoded answer of the daemon.  Raises WhatIfError, ClientError."""
    async with session.get(path, params=query) as response:
        body = await response.read()
        if response.status >= 400:
            said = msgspec.json.decode(body, type=ErrorBody).error
            raise WhatIfError(response.status, said.code, said.message, said.hint)
        return msgspec.json.decode(body, type=kind)


async def _ended(session: aiohttp.ClientSession, since_us: int) -> list[JobInfo]:
    """Return the newest jobs that have been on a device, in the order of their submission.  Raises WhatIfError."""
    found: list[JobInfo] = []
    query = {"phase": "ended", "limit": str(PAGE)}
    while len(found) < MOST_JOBS:
        page = (await _get(session, "/v1/jobs", JobList, **query)).jobs
        found += [
            job for job in page if job.submitted_us >= since_us and job.started_us is not None and job.name != WORKER
        ]
        if len(page) < PAGE or page[0].submitted_us < since_us:
            break
        query["before"] = str(page[0].id)
    if not found:
        raise WhatIfError(409, "no_jobs", NO_JOBS, "ask for more hours")
    return sorted(found, key=lambda job: (job.submitted_us, job.id))[-MOST_JOBS:]


def _write(path: Path, jobs: Sequence[JobInfo]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_cells(job, jobs[0].submitted_us) for job in jobs)


def _cells(job: JobInfo, first_us: int) -> Iterable[object]:
    """Yield the cells of a job, as the simulator reads jobs of a journal: turn time is the job's duration."""
    device_us = max(1, job.device_us)
    yield job.id
    yield _seconds(job.submitted_us - first_us)
    yield job.gpus
    yield _seconds(device_us)
    yield job.iterations if 0 < job.iterations <= device_us else ""
    yield f"{job.persistent_bytes / MIB:.6f}"
    yield f"{job.ephemeral_bytes / MIB:.6f}"
    yield escaped(job.name)
    yield job.weight
    yield job.owner


def _seconds(us: int) -> str:
    return f"{us // 1_000_000}.{us % 1_000_000:06}"
