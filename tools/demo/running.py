"""Waiting for jobs of a private daemon, and saying why one of them failed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from carpool.protocol.api import EventInfo, JobInfo
from carpool.protocol.client import DaemonClient

TIMEOUT_S = 180


class JobFailed(Exception):
    """A job of the demo did not succeed; the text ends with the tail of its output."""


@contextmanager
def time_limit(what: str, seconds: int = TIMEOUT_S) -> Iterator[None]:
    """What hangs would say nothing: after three minutes this raises TimeoutError."""

    def expired(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"{what} did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def follow(client: DaemonClient, jobs: set[int], say: Callable[[int], None] = lambda ended: None) -> list[EventInfo]:
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


def check(info: JobInfo, home: Path) -> None:
    """Raises JobFailed."""
    if info.outcome == "succeeded":
        return
    log = home / "jobs" / str(info.id) / "log"
    tail = log.read_text(errors="replace")[-2000:] if log.exists() else "(no output)"
    reason = info.reason.text if info.reason else f"exit code {info.exit_code}, signal {info.signal}"
    raise JobFailed(f"{info.name} {info.outcome or info.phase}: {reason}\n{tail}")
