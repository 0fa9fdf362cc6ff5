"""A policy of a user's that never answers costs the daemon a second, once; a replay decides what the daemon decided."""

from __future__ import annotations

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
    assert "admission_key took longer than 1 s; it is not used again" in daemon.get("/v1/policy")["fault"]
    (timeout,) = [event for event in daemon.events() if event["kind"] == "PolicyTimedOut"]
    assert timeout["data"]["sort"] == "policy"
    daemon.kill()
    found = replay_journal(daemon.home)
    assert found.lives == 1 and found.difference is None, found.difference
