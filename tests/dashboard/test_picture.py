from __future__ import annotations

from pathlib import Path
from typing import Any

from carpool.dashboard.picture import Picture
from carpool.dashboard.upstream import Upstream
from carpool.protocol.api import EventInfo


def told(picture: Picture, at_us: int, kind: str, **data: Any) -> list[tuple[Any, ...]]:
    picture.heard(EventInfo(at_us, at_us, at_us, kind, data.get("job"), data))
    return [tuple(turn) for turn in picture.turns().get("turns", [])]  # type: ignore[attr-defined]


def test_a_turn_in_a_lane_that_has_just_been_opened_is_on_its_device() -> None:
    picture = Picture(Upstream(Path("/nowhere")), {})
    told(picture, 1, "OpenLane", lane=4, device="host1", owner=0, size=0)
    assert told(picture, 2, "GrantTurn", lane=4, job=1) == [("host1", 4, 1, 2, None, "")]
    told(picture, 3, "CloseLane", lane=4)
    assert told(picture, 4, "TurnReleased", job=1, cause="early") == [("host1", 4, 1, 2, 4, "early")]


def test_what_ended_while_nobody_listened_is_no_long_turn() -> None:
    picture = Picture(Upstream(Path("/nowhere")), {})
    told(picture, 2, "GrantTurn", lane=4, job=1)
    picture.begin()
    assert told(picture, 900, "TurnReleased", job=1, cause="early") == []
