"""Ctrl-C while a job waits for memory: its request is withdrawn, and the job goes on."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.watching import MIB, iterates, until

if TYPE_CHECKING:
    from conftest import Daemon, Daemons, Running, Workload

KEPT, USED = 60, 8


def asked(daemon: Daemon, job: Running, size: int) -> bool:
    events = (event for event in daemon.client.events() if event.job == job.id and event.kind == "MemoryRequested")
    return any(event.data["total"] >= size for event in events)


def test_another_class_can_be_had_instead(daemons: Daemons, workload: type[Workload], tmp_path: Path) -> None:
    """What it waited for stays with another job, which cannot be moved: there is no room in the host store."""
    daemon, release = daemons("host:96MiB", store="1MiB"), tmp_path / "release"
    holder = daemon.submit(workload("steady", ("until", str(release))), ballast_mib=49)
    iterates(daemon, holder, 20)
    job = daemon.submit(workload("withdraws", (str(KEPT), str(USED))))
    until(lambda: asked(daemon, job, KEPT * MIB), daemon)
    job.signal(signal.SIGINT)
    assert job.result() == {"how": "interrupted", "last": 1}
    assert holder.info().phase == "running" and not holder.info().offloaded
    kinds = [event.kind for event in daemon.client.events() if event.job == job.id]
    assert "RequestWithdrawn" in kinds and kinds.count("GrantMemory") >= 1
    release.touch()
    holder.result()
