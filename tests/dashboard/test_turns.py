from __future__ import annotations

from typing import Any

from carpool.dashboard.turns import LiveTurn, LiveTurns, holders
from carpool.protocol.api import EventInfo


def follow(*events: tuple[int, str, int, dict[str, Any]]) -> list[LiveTurn]:
    turns = LiveTurns(lambda lane: f"host{lane}", {5: 3}.get)
    infos = [EventInfo(1, time, time, kind, job, data) for time, kind, job, data in events]
    return [turn for info in infos for turn in turns.follow(info)]


def test_turns_begin_pass_and_end() -> None:
    found = follow(
        (10, "GrantTurn", 1, {"lane": 3, "job": 1}),
        (20, "TurnPassed", 1, {"job": 1, "to": 2, "cause": "boundary"}),
        (30, "TurnReleased", 2, {"job": 2, "cause": "early"}),
    )
    assert found == [
        ("host3", 3, 1, 10, None, ""),
        ("host3", 3, 1, 10, 20, "boundary"),
        ("host3", 3, 2, 20, None, ""),
        ("host3", 3, 2, 20, 30, "early"),
    ]


def test_a_turn_that_began_before_all_events_is_passed_on_in_the_jobs_lane() -> None:
    event = 20, "TurnPassed", 5, {"job": 5, "to": 6, "cause": "boundary"}
    assert follow(event) == [("host3", 3, 6, 20, None, "")]
    assert list(holders(EventInfo(1, 20, 20, *event[1:]))) == [(5, False), (6, True)]


def test_a_turn_of_a_job_that_leaves_is_over() -> None:
    found = follow(
        (10, "GrantTurn", 1, {"lane": 3, "job": 1}), (15, "Detached", 1, {"job": 1}), (16, "EndJob", 1, {"a": 1})
    )
    assert found[1:] == [("host3", 3, 1, 10, 15, "left")]


def test_turns_that_began_before_or_are_hidden_are_left_out() -> None:
    assert follow((20, "TurnReleased", 2, {"job": 2, "cause": "early"}), (21, "GrantTurn", 3, {})) == []
