"""Holders that keep their turn, with a real daemon: what other jobs lose is the lease, and no more.

How long that is the daemon's own records say.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from carpool.core.model import Settings
from carpool.daemon.sigstop import watchdog
from carpool.daemon.system.processes import state_of
from tests.daemon.daemon_harness import Daemon
from tests.tiers import RARER_WAY


@pytest.mark.nightly(RARER_WAY, stays="tests/daemon/sigstop/test_watchdog.py::test_who_keeps_its_turn_is_killed")
def test_a_service_that_keeps_its_turn_is_killed(daemon: Daemon) -> None:
    daemon.put("/v1/policy", {"settings": {"forced_after_us": 100_000}})
    service = daemon.fake("attach", "turn", "say:mine", "pause", service=1)
    daemon.until_line(service, "mine")
    other = daemon.fake("attach", "turn", "release")
    assert daemon.wait(other)["outcome"] == "succeeded"
    ended = daemon.wait(service)
    assert ended["signal"] == signal.SIGKILL and ended["reason"]["code"] == "lease"
    assert "killed by Carpool: it did not give its turn back within 10 s" in ended["reason"]["text"]


def first(events: list[dict[str, Any]], job: int, *kinds: str) -> dict[str, Any]:
    return next(event for event in events if event["kind"] in kinds and event["job"] == job)


def test_a_stopped_holder_has_a_second_and_not_the_lease(daemon: Daemon) -> None:
    """It is continued with the first request, which others of its kind may answer at a boundary within 10 s."""
    deadline_us = int(watchdog.POLLS * watchdog.POLL_S * 1e6)
    assert deadline_us == 1_000_000 and Settings().forced_after_us >= watchdog.LEASE_S * 1e6 == 10 * deadline_us
    holder = daemon.fake("attach", "help", "turn", "say:mine", "pause")
    daemon.until_line(holder, "mine")
    pid = daemon.show(holder)["pid"]
    os.kill(pid, signal.SIGSTOP)
    other = daemon.fake("attach", "turn", "release")
    assert daemon.wait(other)["outcome"] == "succeeded"
    events = daemon.events()
    asked = first(events, holder, "RequestYield")
    gone = first(events, holder, "TurnReleased", "TurnPassed")
    assert not asked["data"]["forced"], "the core has not asked by force before"
    # It has let go the first time it was continued.  When it was looked at is up to the machine, but before its lease.
    assert "did not let go" not in daemon.log() and "is killed" not in daemon.log()
    assert 0 <= gone["now_us"] - asked["now_us"] < watchdog.LEASE_S * 1e6
    assert daemon.show(holder)["phase"] == "running"
    deadline = time.monotonic() + 30
    while state_of(pid, os.geteuid()) != "T":
        assert time.monotonic() < deadline, "it is not stopped again"
        time.sleep(0.001)
