"""A service that keeps its turn, with a real daemon: what other jobs lose is the lease, and no more."""

from __future__ import annotations

import signal

import pytest
from daemon_harness import Daemon

from tests.tiers import RARER_WAY


@pytest.mark.nightly(RARER_WAY, stays="tests/daemon/stopped/test_stopped.py::test_who_keeps_its_turn_is_killed")
def test_a_service_that_keeps_its_turn_is_killed(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"forced_after_us": 100_000}})
    service = daemon.fake("attach", "turn", "say:mine", "pause", service=1)
    daemon.until_line(service, "mine")
    other = daemon.fake("attach", "turn", "release")
    assert daemon.wait(other)["outcome"] == "succeeded"
    ended = daemon.wait(service)
    assert ended["signal"] == signal.SIGKILL and ended["reason"]["code"] == "lease"
    assert "killed by Carpool: it did not give its turn back within 10 s" in ended["reason"]["text"]
