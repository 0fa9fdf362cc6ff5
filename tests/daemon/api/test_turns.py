"""GET /v1/turns: what the events say, over restarts, and as far as a user may see it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.api import TurnsOfBin
from carpool.protocol.client import DaemonClient
from tests.daemon.daemon_harness import Daemon, Refused, as_nobody

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


def of_events(events: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    """Length, job and cause of each turn that has ended, in order."""
    found, begun = [], dict[int, int]()
    for event in events:
        job, now = event["job"], event["now_us"]
        if event["kind"] == "GrantTurn":
            begun[job] = now
        elif event["kind"] in ("TurnPassed", "TurnReleased"):
            found.append((now - begun.pop(job), job, event["data"]["cause"]))
            if event["kind"] == "TurnPassed":
                begun[event["data"]["to"]] = now
    return found


def answered(daemon: Daemon, **asked: Any) -> list[TurnsOfBin]:
    """Turns of all lanes."""
    found = DaemonClient(daemon.home).turns(**asked)
    return [turn for lane in found.lanes for turn in lane.turns]


def exact(daemon: Daemon) -> list[TurnsOfBin]:
    """Every turn by itself: bins are so short that no two begin in one."""
    whole = answered(daemon, bins=1)
    found: list[TurnsOfBin] = []
    for since in range(whole[0].begin_us, whole[-1].end_us + 1, 40_000):
        part = answered(daemon, since_us=since, until_us=since + 40_000, bins=4000)
        found += [turn for turn in part if turn.begin_us >= since]
    return found


def two_that_take_turns(daemon: Daemon) -> tuple[int, int]:
    first, second = (daemon.fake("attach", "rounds:20", "say:done", "pause") for _ in range(2))
    for job in (first, second):
        daemon.until_line(job, "done")
    return first, second


def test_the_answer_is_what_the_events_say(daemon: Daemon) -> None:
    jobs = two_that_take_turns(daemon)
    expected = of_events(daemon.events())
    turns = exact(daemon)
    assert len(turns) == 40 and {turn.job for turn in turns} == set(jobs)
    assert sorted((turn.end_us - turn.begin_us, turn.job, turn.cause) for turn in turns) == sorted(expected)
    assert all(turn.turns == 1 and turn.busy_us == turn.end_us - turn.begin_us for turn in turns)
    (merged,) = answered(daemon, bins=1)
    assert (merged.turns, merged.busy_us) == (40, sum(length for length, _, _ in expected))
    assert answered(daemon, device="host0", bins=1) == [merged]


def test_a_turn_that_goes_on_has_no_cause(daemon: Daemon) -> None:
    job = daemon.fake("attach", "turn", "say:mine", "pause")
    daemon.until_line(job, "mine")
    (turn,) = answered(daemon)
    assert (turn.job, turn.turns, turn.cause) == (job, 1, "") and turn.busy_us == turn.end_us - turn.begin_us
    (later,) = answered(daemon)
    assert later.begin_us == turn.begin_us and later.end_us > turn.end_us
    daemon.cancel(job)
    daemon.wait(job)
    (turn,) = answered(daemon)
    assert turn.begin_us == later.begin_us and turn.cause in ("exit", "left", "ended")


def test_turns_outlive_the_daemon_and_what_a_kill_takes_is_not_invented(daemon: Daemon) -> None:
    two_that_take_turns(daemon)
    before = exact(daemon)
    daemon.terminate()
    daemon.started()
    assert exact(daemon) == before
    more = daemon.fake("attach", "rounds:5", "say:done", "turn", "say:again", "pause")
    daemon.until_line(more, "again")
    daemon.kill()
    daemon.started()
    found = exact(daemon)
    assert found[: len(before)] == before
    assert {(turn.job, turn.cause) for turn in found[len(before) :]} <= {(more, "")}, "adopted, and it goes on"


def test_questions_that_make_no_sense_are_refused(daemon: Daemon) -> None:
    for query in ("bins=0", "bins=1.5", "bins=4001", "since=9&until=9", "since=x"):
        with pytest.raises(Refused) as refused:
            daemon.get(f"/v1/turns?{query}")
        assert (refused.value.status, refused.value.code) == (400, "bad_parameter"), query
    with pytest.raises(Refused) as refused:
        daemon.get("/v1/turns?device=host9")
    assert refused.value.code == "unknown_device"


@needs_root
@pytest.mark.parametrize("visibility", ["names", "own"])
def test_others_see_as_much_as_of_lanes(make_daemon: Any, home: Path, visibility: str) -> None:
    home.parent.chmod(0o711)
    home.mkdir(mode=0o711, exist_ok=True)
    (home / "limits.toml").write_text(f'visibility = "{visibility}"\n')
    daemon = make_daemon().started()
    two_that_take_turns(daemon)
    mine = daemon.get("/v1/turns?bins=1")
    theirs: Any = as_nobody(daemon, "daemon.get('/v1/turns?bins=1')")
    assert len(mine["lanes"]) == 1 and mine["kept_from_us"] is not None
    if visibility == "names":
        assert [lane["turns"][0][2:] for lane in theirs["lanes"]] == [lane["turns"][0][2:] for lane in mine["lanes"]]
    else:
        assert (theirs["lanes"], theirs["kept_from_us"]) == ([], None)
