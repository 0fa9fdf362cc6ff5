"""Jobs that are paused under a daemon: their bytes leave the device, and are the same when they go on."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.display import user_name
from tests.daemon.daemon_harness import Daemon, alive, until
from tests.daemon.filled_jobs import FilledJobs

SIZE = 10 << 20


def wall_us() -> int:
    return time.time_ns() // 1000


@pytest.fixture
def jobs(daemon: Daemon, tmp_path: Path) -> FilledJobs:
    return FilledJobs(daemon, tmp_path, SIZE)


def paused(jobs: FilledJobs, job: int) -> dict[str, Any]:
    """Pause the job, and wait until nothing of it is on its device."""
    assert jobs.daemon.post(f"/v1/jobs/{job}/pause")["paused_by"] == os.getuid()
    until(lambda: jobs.daemon.show(job)["offloaded"])
    until(lambda: jobs.device()["granted_bytes"] == 0)
    return jobs.daemon.show(job)


@pytest.mark.parametrize("rests", [(), ("release",)], ids=["holding", "idle"])
def test_a_paused_job_leaves_the_device_and_comes_back_as_it_was(
    daemon: Daemon, jobs: FilledJobs, rests: tuple[str, ...]
) -> None:
    job = jobs.filled(7, rests=rests)
    pid = daemon.show(job)["pid"]
    info = paused(jobs, job)
    assert info["reason"]["code"] == "paused_by_user"
    assert info["reason"]["text"].startswith(f"paused by {user_name(os.getuid())}; carpool resume {job}")
    assert info["stored_bytes"] >= SIZE and jobs.device()["free_bytes"] == jobs.device()["capacity_bytes"]
    assert alive(pid) and info["pid"] == pid
    other = daemon.fake("attach", "help", "turn", f"grow:p:{SIZE}", f"touch:p:{SIZE}:3", "iterate:5", f"check:{SIZE}:3")
    assert "intact" in daemon.output(daemon.wait(other)["id"])
    assert daemon.show(job)["offloaded"], "nothing brings it back but resume"
    assert daemon.post(f"/v1/jobs/{job}/resume")["paused_by"] is None
    jobs.intact(job)
    assert daemon.show(job)["pid"] == pid


def test_pausing_outlives_the_daemon(daemon: Daemon, jobs: FilledJobs) -> None:
    """Also where the daemon dies before the job has left."""
    gone, leaving = jobs.filled(7), jobs.filled(8, rests=())
    daemon.post(f"/v1/jobs/{gone}/pause")
    until(lambda: daemon.show(gone)["offloaded"])
    daemon.post(f"/v1/jobs/{leaving}/pause")
    daemon.restarted()
    until(lambda: all(daemon.show(job)["offloaded"] for job in (gone, leaving)))
    until(lambda: jobs.device()["granted_bytes"] == 0)
    daemon.restarted()
    for job in (gone, leaving):
        assert daemon.show(job)["reason"]["code"] == "paused_by_user"
        daemon.post(f"/v1/jobs/{job}/resume")
        jobs.intact(job)


def test_a_paused_job_can_be_cancelled(daemon: Daemon, jobs: FilledJobs) -> None:
    job = jobs.filled(7, rests=())
    paused(jobs, job)
    assert daemon.cancelled(job)["outcome"] == "cancelled"


def test_a_queued_job_that_is_paused_waits_and_that_is_no_pause_of_the_attempt(daemon: Daemon) -> None:
    job = daemon.python("import time; print('here', flush=True); time.sleep(60)", hold=True, time_us=60_000_000)
    daemon.post(f"/v1/jobs/{job}/pause")
    daemon.post(f"/v1/jobs/{job}/release")
    daemon.restarted()
    assert (daemon.show(job)["paused_us"], daemon.show(job)["reason"]["code"]) == (0, "paused_by_user")
    daemon.post(f"/v1/jobs/{job}/resume")
    daemon.until_line(job, "here")
    assert daemon.show(job)["paused_us"] == 0


def test_the_time_limit_stands_still_under_the_next_daemon_too(daemon: Daemon) -> None:
    """The pause is longer than the limit, and that lies half a second beyond what the job has computed."""
    job = daemon.python("import time; print('here', flush=True); time.sleep(60)", time_us=600_000_000, line="here")
    daemon.post(f"/v1/jobs/{job}/pause")
    started_us = daemon.show(job)["started_us"]
    limit_us = wall_us() - started_us + 500_000
    daemon.request("PATCH", f"/v1/jobs/{job}", {"time_us": limit_us})
    daemon.kill()
    until(lambda: wall_us() > started_us + limit_us)
    daemon.started()
    assert daemon.show(job)["phase"] == "running"
    resumed = daemon.post(f"/v1/jobs/{job}/resume")
    assert resumed["paused_us"] >= 500_000 - 10_000
    daemon.restarted()
    assert daemon.show(job)["paused_us"] == resumed["paused_us"]
    info = daemon.wait(job)
    assert info["outcome"] == "timed_out"
    assert info["ended_us"] - info["started_us"] >= limit_us + resumed["paused_us"] - 10_000
