"""A policy of a user's that never answers costs the daemon a second, once; a replay decides what the daemon decided."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

from carpool.sim.replay import replay_journal
from tests.daemon.daemon_harness import Daemon

LOOPING = """
from carpool.policies import BasePolicy

class Looping(BasePolicy):
    name = "looping"

    def admission_key(self, view, job):
        while job.arrival >= 2:
            pass
        return (-job.arrival,)
"""


@pytest.mark.filterwarnings("error")
def test_a_policy_that_loops_is_disabled(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "looping.py").write_text(LOOPING)
    daemon.put("/v1/policy", {"name": f"{tmp_path / 'looping.py'}:Looping"})
    jobs = [daemon.fake("attach", "turn", "release") for _ in range(5)]
    for job in jobs:
        assert daemon.wait(job)["outcome"] == "succeeded"
    assert "admission_key took longer than 1 s; it is not asked again" in daemon.get("/v1/policy")["fault"]
    (timeout,) = [event for event in daemon.events() if event["kind"] == "PolicyTimedOut"]
    assert timeout["data"]["sort"] == "policy"
    daemon.kill()
    found = replay_journal(daemon.home)
    assert found.lives == 1 and found.difference is None, found.difference


HANGING = """
import collections
import itertools

from carpool.policies import BasePolicy

class Hanging(BasePolicy):
    name = "hanging"

    def admission_key(self, view, job):
        if job.arrival >= 2:
            collections.deque(itertools.repeat(None), maxlen=0)  # a loop in C, which nothing interrupts
        return (-job.arrival,)
"""


@pytest.mark.nightly(
    "the daemon stands still for twenty seconds",
    stays="tests/daemon/config/test_policy_calls.py::test_a_call_that_never_returns_ends_the_daemon",
)
def test_a_policy_that_never_returns_ends_the_daemon_and_is_not_in_force_afterwards(
    daemon: Daemon, tmp_path: Path
) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    daemon.put("/v1/policy", {"name": f"{tmp_path / 'hanging.py'}:Hanging"})
    jobs = [daemon.fake("attach", "turn", "release") for _ in range(2)]
    with pytest.raises((OSError, http.client.HTTPException)):
        while True:
            jobs.append(daemon.fake("attach", "turn", "release"))
    daemon.start()
    for job in jobs:
        assert daemon.wait(job)["outcome"] == "succeeded"
    policy = daemon.get("/v1/policy")
    assert policy["name"] == "fair"
    assert "hanging.py:Hanging did not return from a call" in policy["fault"]
    daemon.put("/v1/policy", {"name": "fifo"})
    assert daemon.get("/v1/policy")["fault"] is None
    daemon.kill()
    assert replay_journal(daemon.home).difference is None
