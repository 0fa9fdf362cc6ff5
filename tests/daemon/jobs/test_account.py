"""Scripted jobs, held, paused, requeued, cancelled and changed at random moments, under daemons that are killed.

Each attempt has a log of its own, in which its process says once that it began: an attempt that ran twice would show.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from tests.daemon.daemon_harness import Daemon, Make, Refused

COMMAND = "echo begun; sleep 0.0$((RANDOM % 9 + 1)); exit $((RANDOM % 6 / 5))"
ACTIONS = ("hold", "release", "pause", "resume", "requeue", "requeue", "cancel", "update")


def disturb(daemon: Daemon, moments: random.Random, job: int) -> None:
    """What is not possible at the moment is refused, and changes nothing."""
    action = moments.choice(ACTIONS)
    with suppress(Refused):
        if action == "update":
            daemon.request("PATCH", f"/v1/jobs/{job}", {"weight": moments.choice([50, 200])})
        elif action != "cancel" or moments.random() < 0.3:
            daemon.post(f"/v1/jobs/{job}/{action}")


def submit(daemon: Daemon, moments: random.Random, jobs: list[int]) -> None:
    fields: dict[str, Any] = {"retries": moments.choice([0, 1]), "hold": moments.random() < 0.2}
    if jobs and moments.random() < 0.2:
        with suppress(Refused):  # the other one has ended otherwise
            jobs.append(daemon.submit("bash", "-c", COMMAND, after_any=[moments.choice(jobs)], **fields))
            return
    jobs.append(daemon.submit("bash", "-c", COMMAND, **fields))


def let_go(daemon: Daemon, job: int) -> dict[str, Any]:
    for action in ("release", "resume"):
        with suppress(Refused):
            daemon.post(f"/v1/jobs/{job}/{action}")
    return daemon.wait(job)


def check(daemon: Daemon, info: dict[str, Any]) -> None:
    job, last = info["id"], info["attempt"]
    begun = [daemon.get(f"/v1/jobs/{job}/logs?attempt={number}").count(b"begun") for number in range(1, last + 1)]
    assert all(count <= 1 for count in begun), f"job {job}: an attempt ran twice: {begun}"
    assert info["outcome"] in ("succeeded", "failed", "cancelled"), info
    if info["outcome"] == "succeeded":
        assert begun[-1] == 1 and info["exit_code"] == 0
    assert [attempt["number"] for attempt in info["attempts"]] in ([], list(range(1, last)), list(range(1, last + 1)))


def run(daemon: Daemon, moments: random.Random, count: int, kills: int) -> None:
    jobs: list[int] = []
    killed_at = {moments.randrange(count) for _ in range(kills)}
    for number in range(count):
        submit(daemon, moments, jobs)
        for _ in range(2):
            disturb(daemon, moments, moments.choice(jobs))
        if number in killed_at:
            daemon.restarted()
    ended = [let_go(daemon, job) for job in jobs]
    assert [info["id"] for info in ended] == jobs == sorted(set(jobs))
    for info in ended:
        check(daemon, info)
    daemon.restarted()
    listed = {info["id"]: info["outcome"] for info in daemon.get("/v1/jobs")["jobs"]}
    assert listed == {info["id"]: info["outcome"] for info in ended}, "the next daemon knows the same ends"


def test_no_job_is_lost_and_none_runs_twice(make_daemon: Make, moments: random.Random) -> None:
    run(make_daemon(limits='retry_pause = "10ms"\n').started(), moments, count=25, kills=2)


@pytest.mark.nightly(
    "kills at random points: a minute",
    stays="test_no_job_is_lost_and_none_runs_twice",
)
def test_of_many_jobs_none_is_lost(make_daemon: Make, moments: random.Random) -> None:
    run(make_daemon("--device", "host:64MiB", "--device", "host:64MiB").started(), moments, count=150, kills=8)
