"""All jobs at once on one device or several, under one policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.five_policies.results import JobResult, Round
from carpool.protocol.api import JobInfo, SubmitRequest
from carpool.protocol.units import exact_size
from tools.demo.jobs import JOBS, ROOT, DemoJob, environment
from tools.demo.running import check, follow, time_limit
from tools.demo.session import Session
from tools.demo.timeline import Timeline, read_timeline


def run_shared(
    directory: Path,
    policy: str,
    capacity: int,
    scale: float,
    say: Callable[[str], None],
    devices: int = 1,
    jobs: Sequence[DemoJob] = JOBS,
) -> Round:
    """A fresh daemon, so that no round learns from the one before.  ``capacity``: bytes of each device.

    Raises JobFailed, DaemonFailed, ClientError, TimeoutError.
    """
    with (
        Session(directory / "home", [f"host:{exact_size(capacity)}"] * devices, policy) as client,
        time_limit(f"the jobs under {policy}"),
    ):
        ids = [client.submit(_request(directory, job, scale)) for job in jobs]
        events = follow(client, set(ids), lambda ended: say(f"{policy}: {ended} of {len(ids)} jobs ended"))
        infos = [client.job(job) for job in ids]
    for info in infos:
        check(info, directory / "home")
    return _round(policy, directory, read_timeline(events), infos)


def _request(directory: Path, job: DemoJob, scale: float) -> SubmitRequest:
    return SubmitRequest(
        argv=job.argv(directory / f"{job.name}.pt", scale),
        cwd=str(ROOT),
        env=environment(),
        name=job.name,
        iterations=job.steps(scale),
    )


def _round(policy: str, directory: Path, timeline: Timeline, infos: list[JobInfo]) -> Round:
    results = tuple(
        JobResult(
            info.name,
            (timeline.end_of(info.id) - timeline.lives[info.id].submitted_us) / 1e6,
            timeline.lives[info.id].queueing_us / 1e6,
            directory / f"{info.name}.pt",
        )
        for info in infos
    )
    peaks = {info.name: (info.persistent_bytes, info.ephemeral_bytes) for info in infos}
    names = {info.id: info.name for info in infos}
    return Round(policy, results, (timeline.end_us - timeline.start_us) / 1e6, timeline, peaks, names)
