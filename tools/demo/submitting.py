"""Submitting what the demo runs, and its names in a picture."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from carpool.core.model import MIB
from carpool.protocol.api import EventInfo, SubmitRequest
from carpool.protocol.client import DaemonClient
from tools.demo.jobs import ROOT, with_the_demo
from tools.demo.picture import Band
from tools.demo.timeline import Timeline, read_timeline

CAPACITY = 256 * MIB
#: One computes at a time, and nobody waits until others have been measured.
ONE_LANE = {"max_lanes": 1}


def example(client: DaemonClient, name: str, iterations: int, *, save: Path | None = None, **more: Any) -> int:
    """A job that runs a script of ``docs/examples/``, and perhaps saves its weights.  Its id."""
    arguments = ["--iterations", str(iterations), *(["--save", str(save)] if save else [])]
    path = ROOT / "docs" / "examples" / f"{name}.py"
    return script(client, path, name, *arguments, iterations=iterations, **more)


def program(client: DaemonClient, name: str, label: str = "", **more: Any) -> int:
    """A job that runs a script of ``tools/demo/programs/``.  Its id."""
    return script(client, ROOT / "tools" / "demo" / "programs" / f"{name}.py", label or name, **more)


def script(client: DaemonClient, path: Path, label: str, *arguments: str, **more: Any) -> int:
    argv = [sys.executable, str(path), *arguments]
    return client.submit(SubmitRequest(argv=argv, cwd=str(ROOT), env=with_the_demo(), name=label, **more))


def until_computing(client: DaemonClient, jobs: list[int]) -> None:
    while any(client.job(job).iterations == 0 for job in jobs):
        time.sleep(0.05)


def band(title: str, events: list[EventInfo], client: DaemonClient) -> Band:
    timeline = read_timeline(events)
    return Band(title, timeline, {job: client.job(job).name for job in timeline.lives})


def seconds(timeline: Timeline, job: int) -> float:
    """From the submission of the job to its end."""
    return (timeline.end_of(job) - timeline.lives[job].submitted_us) / 1e6
