"""GET /v1/turns of a real daemon: what scripted jobs did, and nothing that did not happen."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from daemon_harness import Daemon, as_nobody, until

from carpool.protocol.api import EventInfo
from carpool.timeline.follower import Follower
from carpool.timeline.marks import Begin, End, Track

Make = Callable[..., Daemon]
ROUNDS = "attach", "grow:p:4194304", "grow:e:4194304", "rounds:20", "say:done", "pause"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


def turns(daemon: Daemon, query: str = "") -> list[list[Any]]:
    """Those of the only lane that has any."""
    lanes = daemon.get(f"/v1/turns?{query}")["lanes"]
    assert len(lanes) <= 1
    return lanes[0]["turns"] if lanes else []


def told_by_events(daemon: Daemon) -> list[tuple[int, int, int, str]]:
    """The same turns as the timeline makes them of the daemon's events: begin, end, job and cause."""
    lines = daemon.get("/v1/events").splitlines()
    events = [EventInfo(**json.loads(line)) for line in lines]
    open_: dict[Track, Begin] = {}
    found = []
    for mark in Follower(lambda event: event.kind).follow(events):
        if isinstance(mark, Begin) and mark.track.name.startswith("lane"):
            open_[mark.track] = mark
        elif isinstance(mark, End) and mark.track in open_:
            begin = open_.pop(mark.track)
            found.append((begin.time_ns // 1000, mark.time_ns // 1000, begin.job or 0, str(mark.arguments["end"])))
    return found


def test_the_history_is_what_the_events_say(daemon: Daemon) -> None:
    since_us = time.time_ns() // 1000 - 60_000_000
    jobs = [daemon.fake(*ROUNDS) for _ in range(2)]
    for job in jobs:
        daemon.until_line(job, "done")
    events = told_by_events(daemon)
    found = turns(daemon, f"since={since_us}&bins=4000")
    assert {row[2] for row in found} == set(jobs) and sum(row[3] for row in found) == len(events) >= 40
    assert all(left[1] <= right[0] for left, right in pairwise(found))
    exact = turns(daemon, f"since={events[0][0] - 1000}&until={events[3][1] + 1000}&bins=4000")[:3]
    for (begin, end, job, cause), row in zip(events, exact, strict=False):
        assert row[2:5] == [job, 1, cause] and row[5] == row[1] - row[0]
        assert abs(row[0] - begin) < 100_000 and abs(row[1] - end) < 100_000, "heard at the same moment"
    assert len(turns(daemon, f"since={since_us}&bins=1")) == 1


def test_turns_are_known_after_a_stop_and_after_a_kill(daemon: Daemon) -> None:
    job = daemon.fake(*ROUNDS)
    daemon.until_line(job, "done")
    now_us = time.time_ns() // 1000
    asked = f"since={now_us - 60_000_000}&until={now_us}&bins=4000"
    before = turns(daemon, asked)
    daemon.post("/v1/shutdown", {"stop_jobs": False})
    assert daemon.process is not None and daemon.process.wait(60) == 0
    daemon.started()
    assert turns(daemon, asked) == before
    daemon.kill()
    daemon.started()
    assert turns(daemon, asked) == before, "what was in the journal is there, and nothing else"


def test_bad_questions_are_explained(daemon: Daemon) -> None:
    for query, text in (
        ("since=5&until=5", "must be before until"),
        ("bins=0", "from 1 to 4000"),
        ("bins=4001", "from 1 to 4000"),
        ("bins=x", "bins"),
        ("device=none", "none"),
    ):
        with pytest.raises(Exception, match=text):
            daemon.get(f"/v1/turns?{query}")
    answer = daemon.get("/v1/turns")
    assert answer["lanes"] == [] and answer["kept_from_us"] is None and answer["until_us"] > answer["since_us"]


@needs_root
@pytest.mark.parametrize("visibility", ["names", "own"])
def test_others_turns_are_shown_as_far_as_their_jobs_are(make_daemon: Make, home: Path, visibility: str) -> None:
    home.parent.chmod(0o711)
    home.mkdir(mode=0o711)
    (home / "limits.toml").write_text(f'visibility = "{visibility}"\n')
    daemon = make_daemon().started()
    job = daemon.fake(*ROUNDS)
    daemon.until_line(job, "done")
    until(lambda: turns(daemon))
    seen: Any = as_nobody(daemon, "daemon.get('/v1/turns')['lanes']")
    assert bool(seen) == (visibility == "names")
