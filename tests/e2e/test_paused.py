"""A training job that is paused leaves its device, and computes afterwards what it would have computed without that."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.watching import MIB, iterates, nothing_left, until

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemons
    from tests.live import Workload


def test_a_paused_job_computes_the_same(
    bare: Bare, daemons: Daemons, workload: type[Workload], tmp_path: Path, moments: random.Random
) -> None:
    """Wherever in an iteration it is paused; meanwhile another job has most of the device."""
    release = tmp_path / "release"
    daemon = daemons("host:96MiB")
    job = daemon.submit(workload("steady", ("until", str(release))), ballast_mib=49)
    iterates(daemon, job)
    pid = job.info().pid
    for _ in range(3):
        time.sleep(moments.random() / 20)
        daemon.client.pause(job.id)
        until(lambda: job.info().offloaded, daemon)
        done = job.info().iterations
        (device,) = daemon.client.devices()
        assert device.granted_bytes == 0 and job.info().stored_bytes >= 49 * MIB
        assert job.info().reason is not None and job.info().reason.code == "paused_by_user"
        other = daemon.submit_taking(f"import torch; torch.ones({49 * MIB // 4})")
        assert other.wait().outcome == "succeeded"
        assert (job.info().iterations, job.info().pid, job.info().offloaded) == (done, pid, True)
        daemon.client.resume(job.id)
        iterates(daemon, job)
    release.touch()
    result = job.result()
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])
    nothing_left(daemon)
