"""What tests ask a running daemon about jobs that share too little memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.facts.fact import Fact
from tools.demo.timeline import read_timeline

if TYPE_CHECKING:
    from carpool.protocol.api import JobInfo
    from tests.e2e.conftest import Daemon, Running

MIB = 1 << 20
#: For one step of a test on a busy machine.
PATIENCE_S = 60.0


def until(what: Callable[[], object], daemon: Daemon) -> None:
    """Ask again and again, for what nobody tells."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, daemon.story()
        time.sleep(0.002)


def last_event(daemon: Daemon) -> int:
    """The number of the latest event so far."""
    return max((event.seq for event in daemon.client.events()), default=0)


def until_event(daemon: Daemon, kind: str, job: Running, since: int = 0) -> None:
    """Return when the daemon has recorded such an event of this job."""
    with closing(daemon.client.events(follow=True, since=since)) as events:
        assert any(event.kind == kind and event.job == job.id for event in events)


def iterates(daemon: Daemon, job: Running, more: int = 5) -> None:
    """Return when the job has done some more iterations than now."""
    goal = job.info().iterations + more
    until(lambda: job.info().iterations >= goal, daemon)


def counted(daemon: Daemon, kind: str) -> Counter[int | None]:
    """How many events or commands of a kind there were, by job."""
    return Counter(event.job for event in daemon.client.events() if event.kind == kind)


def is_moving(daemon: Daemon, job: Running) -> bool:
    """Whether the job has been asked to offload and has not done so."""
    kinds = [event.kind for event in daemon.client.events() if event.job == job.id]
    moves = [kind for kind in kinds if kind in ("Offload", "Offloaded", "OffloadFailed")]
    return moves[-1:] == ["Offload"]


def causes(daemon: Daemon) -> Counter[str]:
    """Why turns ended."""
    ends = (event for event in daemon.client.events() if event.kind in ("TurnPassed", "TurnReleased"))
    return Counter(str(event.data["cause"]) for event in ends)


def turns(daemon: Daemon) -> list[Fact]:
    """Turns that have ended."""
    return read_timeline(daemon.client.events()).turns


def process_state(pid: int) -> str:
    """As in /proc/PID/stat: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def nothing_left(daemon: Daemon) -> None:
    """All pages of device and store have been given back."""

    def empty() -> bool:
        devices = daemon.client.device_list()
        kept = devices.store.kept_bytes + devices.store.used_bytes
        return (
            not any(device.used_bytes or device.granted_bytes or device.stored_bytes for device in devices.devices)
            and not kept
        )

    until(empty, daemon)


def joined(daemon: Daemon, name: str, since: int = 0) -> JobInfo:
    """The job of this name, once a process has joined as that."""
    with closing(daemon.client.events(follow=True, since=since)) as events:
        for event in events:
            if event.kind == "Submitted" and (info := daemon.client.job(event.job or 0)).name == name:
                return info
    raise AssertionError(f"{name} has not joined")
