"""Ctrl-C while a job waits for memory: its request is withdrawn, and the job goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.watching import MIB, until

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Daemons, Running
    from tests.live import Workload

KEPT, USED = 60, 8


def asked(daemon: Daemon, job: Running, size: int) -> bool:
    events = (event for event in daemon.client.events() if event.job == job.id and event.kind == "MemoryRequested")
    return any(event.data["total"] >= size for event in events)


def test_another_class_can_be_had_instead(daemons: Daemons, workload: type[Workload], tmp_path: Path) -> None:
    """What it waited for stays with another job, which cannot be moved: there is no room in the host store."""
    daemon, release = daemons("host:96MiB", store="1MiB"), tmp_path / "release"
    os.mkfifo(release)
    holder = daemon.submit_taking(f"import torch; kept = torch.ones({49 * MIB // 4}); open({str(release)!r}).read()")
    until(lambda: asked(daemon, holder, 49 * MIB) and holder.info().persistent_bytes >= 49 * MIB, daemon)
    job = daemon.submit(workload("withdraws", (str(KEPT), str(USED))))
    until(lambda: asked(daemon, job, KEPT * MIB), daemon)
    job.signal(signal.SIGINT)
    assert job.result() == {"how": "interrupted", "last": 1}
    assert holder.info().phase == "running" and not holder.info().offloaded
    kinds = [event.kind for event in daemon.client.events() if event.job == job.id]
    assert "RequestWithdrawn" in kinds and kinds.count("GrantMemory") >= 1
    release.write_text("")
    assert holder.wait().outcome == "succeeded"
