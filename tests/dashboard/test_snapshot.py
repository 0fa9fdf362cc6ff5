from __future__ import annotations

from pathlib import Path
from typing import Any

from carpool.dashboard.snapshot import DashboardSnapshot
from carpool.dashboard.upstream import Upstream
from carpool.protocol.api import EventInfo

EARLY: dict[str, Any] = {"cause": "early", "usage": {}}


def told(snapshot: DashboardSnapshot, at_us: int, kind: str, **data: Any) -> list[tuple[Any, ...]]:
    snapshot.heard(EventInfo(at_us, at_us, at_us, kind, data.get("job"), data))
    return [tuple(turn) for turn in snapshot.turns().get("turns", [])]  # type: ignore[attr-defined]


def test_a_turn_in_a_lane_that_has_just_been_opened_is_on_its_device() -> None:
    snapshot = DashboardSnapshot(Upstream(Path("/nowhere")), {})
    told(snapshot, 1, "OpenLane", lane=4, device="host1", owner=0, size=0)
    assert told(snapshot, 2, "GrantTurn", lane=4, job=1) == [("host1", 4, 1, 2, None, "")]
    assert told(snapshot, 4, "TurnReleased", job=1, **EARLY) == [("host1", 4, 1, 2, 4, "early")]
    told(snapshot, 5, "GrantTurn", lane=4, job=1)
    assert told(snapshot, 6, "CloseLane", lane=4) == [("host1", 4, 1, 5, 6, "unknown")]


def test_a_turn_that_began_before_all_events_is_passed_on_in_the_jobs_lane() -> None:
    snapshot = DashboardSnapshot(Upstream(Path("/nowhere")), {})
    snapshot._jobs = {5: {"lane": 3, "holds_turn": True}, 6: {"lane": 3, "holds_turn": False}}
    snapshot._lanes = {3: "host3"}
    assert told(snapshot, 20, "TurnPassed", job=5, to=6, **EARLY) == [("host3", 3, 6, 20, None, "")]
    assert [snapshot._jobs[job]["holds_turn"] for job in (5, 6)] == [False, True]


def test_hidden_events_are_passed_over() -> None:
    snapshot = DashboardSnapshot(Upstream(Path("/nowhere")), {})
    snapshot.heard(EventInfo(1, 1, 1, "GrantTurn", 3, {}))
    assert snapshot.turns() == {}


def test_what_ended_while_nobody_listened_is_no_long_turn() -> None:
    snapshot = DashboardSnapshot(Upstream(Path("/nowhere")), {})
    told(snapshot, 2, "GrantTurn", lane=4, job=1)
    snapshot.begin()
    assert told(snapshot, 900, "TurnReleased", job=1, **EARLY) == []
