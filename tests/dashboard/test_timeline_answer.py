"""Turns, and what happened beside them, of a real daemon; pauses of events that a service would cause."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.dashboard.timeline import Stretch, rows_of
from carpool.protocol.api import EventInfo
from tests.daemon.daemon_harness import Daemon
from tests.dashboard.conftest import Page

MIB = 1 << 20


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        made = Daemon(Path(directory) / "home", "--device", "host:64MiB").started()
        yield made
        made.stop()


def test_a_jobs_turns_and_requests_are_on_its_device(daemon: Daemon) -> None:
    since_us = time.time_ns() // 1000
    job = daemon.fake("attach", f"grow:p:{MIB}", "rounds:20")
    assert daemon.wait(job)["outcome"] == "succeeded"
    page = Page(daemon.home).follow_link()
    try:
        query = f"since_us={since_us}&until_us={time.time_ns() // 1000 + 1}&width=500"
        answer = page.ask("GET", f"/api/timeline?{query}").json()
        assert page.ask("GET", "/api/timeline?since_us=5").status == 400
    finally:
        page.close()
    assert {lane["device"] for lane in answer["lanes"]} == {"host0"}
    assert job in [turn[2] for lane in answer["lanes"] for turn in lane["turns"]]
    assert {(block[0], block[1]) for block in answer["requests"]} == {("host0", job)}
    assert answer["moves"] == answer["pauses"] == []


def event(at_us: int, kind: str, job: int, **data: object) -> EventInfo:
    return EventInfo(at_us, at_us, at_us, kind, job, {"job": job, **data})


def test_pauses_last_until_the_turn_goes_on_or_the_job_is_no_more() -> None:
    events = [
        event(5, "TurnPaused", 1, usage={}),
        event(10, "TurnPaused", 2, usage={}),
        event(20, "GrantTurn", 1, lane=1),
        event(30, "EndJob", 2, outcome="failed"),
        event(40, "TurnPaused", 1, usage={}),
    ]
    pauses = rows_of(events, Stretch(8, 100, 92), {1: "host0", 2: "host1"})["pauses"]
    found = [(block.device, block.job, block.begin_us, block.end_us) for block in pauses]
    assert found == [("host0", 1, 5, 20), ("host0", 1, 40, 100), ("host1", 2, 10, 30)]
