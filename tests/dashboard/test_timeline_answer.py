"""Turns, and what happened beside them, of a real daemon; pauses of events that a service would cause."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.dashboard.timeline import MOST_PIXELS, Stretch, TimelineBlock, rows_of, thinned
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


TIMES = st.tuples(st.integers(0, 10_000), st.integers(0, 500))


@given(st.lists(st.tuples(st.integers(1, 3), TIMES), max_size=200), st.integers(1, 50))
def test_at_most_one_block_begins_in_a_pixel_of_a_job_and_none_is_lost(
    found: list[tuple[int, tuple[int, int]]], width: int
) -> None:
    stretch = Stretch(0, 10_001, width)
    blocks = [TimelineBlock("host0", job, begin, begin + length, "moves", "") for job, (begin, length) in found]
    kept = list(thinned(blocks, stretch))
    pixels = [(block.job, block.begin_us * width // 10_001) for block in kept]
    assert len(set(pixels)) == len(pixels) <= 3 * width
    for block in blocks:
        assert any(
            one.job == block.job and one.begin_us <= block.begin_us and one.end_us >= block.end_us for one in kept
        )


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"since_us": "0", "until_us": "0", "width": "10"},
        {"since_us": "x", "until_us": "1", "width": "10"},
        {"since_us": "0", "until_us": "1", "width": "0"},
        {"since_us": "0", "until_us": "1", "width": str(MOST_PIXELS + 1)},
        {"since_us": "-1", "until_us": "1", "width": "1"},
    ],
)
def test_impossible_stretches_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Stretch.of(query)


def test_a_stretch_is_read() -> None:
    assert Stretch.of({"since_us": "5", "until_us": "9", "width": "100"}) == Stretch(5, 9, 100)
