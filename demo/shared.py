"""All jobs at once on one device or several, under one policy."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from carpool.protocol.api import EventInfo, JobInfo, SubmitRequest
from carpool.protocol.client import DaemonClient
from carpool.protocol.units import exact_size
from demo.alone import JobFailed
from demo.jobs import JOBS, ROOT, DemoJob, environment
from demo.results import JobResult, Round
from demo.session import Session
from demo.timeline import Timeline, read_timeline

TIMEOUT_S = 180


def run_shared(
    directory: Path, policy: str, capacity: int, scale: float, say: Callable[[str], None], devices: int = 1
) -> Round:
    """A fresh daemon, so that no round learns from the one before.  ``capacity``: bytes of each device.

    Raises JobFailed, DaemonFailed, ClientError, TimeoutError.
    """
    with Session(directory / "home", [f"host:{exact_size(capacity)}"] * devices, policy) as client, _time_limit(policy):
        ids = [client.submit(_request(directory, job, scale)) for job in JOBS]
        events = _follow(client, set(ids), lambda ended: say(f"{policy}: {ended} of {len(ids)} jobs ended"))
        infos = [client.job(job) for job in ids]
    for info in infos:
        _check(info, directory / "home")
    return _round(policy, directory, read_timeline(events), infos)


@contextmanager
def _time_limit(policy: str) -> Iterator[None]:
    """A demo that hangs would say nothing: after three minutes it says so."""

    def expired(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the jobs under {policy} did not end within {TIMEOUT_S} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(TIMEOUT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _request(directory: Path, job: DemoJob, scale: float) -> SubmitRequest:
    return SubmitRequest(
        argv=job.argv(directory / f"{job.name}.pt", scale),
        cwd=str(ROOT),
        env=environment(),
        name=job.name,
        iterations=job.steps(scale),
    )


def _follow(client: DaemonClient, jobs: set[int], say: Callable[[int], None]) -> list[EventInfo]:
    """All events until the last of the jobs has ended."""
    events: list[EventInfo] = []
    left = set(jobs)
    for event in client.events(follow=True):
        events.append(event)
        if event.kind == "EndJob" and event.job in left:
            left.remove(event.job)
            say(len(jobs) - len(left))
        if not left:
            break
    return events


def _check(info: JobInfo, home: Path) -> None:
    if info.outcome == "succeeded":
        return
    log = home / "jobs" / str(info.id) / "log"
    tail = log.read_text(errors="replace")[-2000:] if log.exists() else "(no output)"
    reason = info.reason.text if info.reason else f"exit code {info.exit_code}, signal {info.signal}"
    raise JobFailed(f"{info.name} {info.outcome or info.phase}: {reason}\n{tail}")


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
