"""Events become tracks: turns as they were, waits, requests with their answers, and nothing that is not known."""

from __future__ import annotations

import pytest

from carpool.timeline.window import Begin, End, Point, Value
from tests.corpus.journals import names
from tests.timeline.recorded import EPOCH_US, event, events, followed, slices, timeline

USAGE = {"iterations": 7, "device_us": 40, "residue": 5, "persistent_live": 20, "ephemeral_live": 3}
START = [
    event(100, "RestartBegan"),
    event(110, "Submitted", job=1, spec={"name": "first", "owner": 5}),
    event(120, "OpenLane", lane=3, device="gpu0", owner=5, size=64),
    event(120, "StartJob", job=1, device="gpu0", lane=3, decision={"policy": "magm"}),
    event(150, "Attached", job=1),
]


def at(us: int) -> int:
    return (EPOCH_US + us) * 1000


@pytest.mark.parametrize("name", names())
def test_marks_of_recorded_journals_are_in_order_and_complete(name: str) -> None:
    for track, found in slices(timeline(events(name))).items():
        ends = [end for _, end, _ in found]
        assert all(begin >= end for (begin, _, _), end in zip(found[1:], ends, strict=False)), track


def test_the_life_of_a_job() -> None:
    marks = timeline([
        *START,
        event(160, "TurnWanted", job=1),
        event(175, "GrantTurn", job=1, lane=3),
        event(190, "TurnReleased", job=1, cause="boundary", usage=USAGE),
        event(200, "EndJob", job=1, outcome="succeeded"),
    ])  # fmt: skip
    found = {(track.group.name, track.name): those for track, those in slices(marks).items()}
    assert found == {
        ("job 1 first", "state"): [
            (at(110), at(120), "queued"),
            (at(120), at(150), "starts"),
            (at(160), at(175), "waits for its turn"),
            (at(175), at(190), "computes"),
        ],
        ("gpu0", "lane 3"): [(at(175), at(190), "job 1 first")],
    }
    assert [mark.name for mark in marks if isinstance(mark, Point)][1:] == ["succeeded"]
    values = [(mark.track.name, mark.value) for mark in marks if isinstance(mark, Value)]
    assert ("memory of lanes", 64) in values and ("memory alive", 23) in values


def test_what_comes_after_the_end_of_a_job_is_on_its_track() -> None:
    *before, late = timeline([
        *START,
        event(200, "EndJob", job=1, outcome="succeeded"),
        event(210, "SignalJob", job=1, signal=9),
    ])  # fmt: skip
    assert isinstance(late, Point) and (late.time_ns, late.track.group.name) == (at(210), "job 1 first")
    assert late.track in {mark.track for mark in before}


def test_an_arrow_leads_from_the_wish_to_the_turn() -> None:
    marks = followed([
        *START,
        event(160, "TurnWanted", job=1),
        event(175, "GrantTurn", job=1, lane=3),
        event(190, "TurnReleased", job=1, cause="boundary", usage=USAGE),
        event(195, "GrantTurn", job=1, lane=3),
    ])  # fmt: skip
    begins = [mark for mark in marks if isinstance(mark, Begin) and mark.time_ns >= at(160)]
    assert [begin.flows for begin in begins] == [(1,), (1,), (1,), (), ()]
    lane = [mark for mark in marks if mark.track.name == "lane 3"]
    assert isinstance(lane[1], End)
    assert lane[1].arguments == {"end": "boundary", "iterations": 7, "device_us": 40, "residue": 5}


def test_a_turn_that_jobs_hand_over_is_one_after_the_other() -> None:
    marks = timeline([
        *START,
        event(160, "GrantTurn", job=1, lane=3),
        event(170, "TurnPassed", job=1, to=2, cause="forced", usage=USAGE),
        event(180, "Detached", job=2),
    ])  # fmt: skip
    (lane,) = (those for track, those in slices(marks).items() if track.name == "lane 3")
    assert lane == [(at(160), at(170), "job 1 first"), (at(170), at(180), "job 2")]


def test_a_request_for_memory_ends_with_its_answer() -> None:
    full = {"code": "x", "text": "full"}
    answer = event(180, "DenyMemory", job=1, memory_class="persistent", reason=full)
    marks = followed([*START, event(160, "MemoryRequested", job=1, memory_class="persistent", total=30), answer])
    begin, end = (mark for mark in marks if mark.track.name == "persistent memory")
    assert isinstance(begin, Begin) and begin.arguments == {"bytes": 30}
    assert isinstance(end, End) and (end.arguments["end"], end.arguments["reason"]) == ("denied", "full")


def test_an_attempt_that_fails_gives_all_back() -> None:
    marks = timeline([
        *START,
        event(160, "GrantMemory", job=1, memory={"persistent": 30, "ephemeral": 0}, answers=None),
        event(170, "GrantTurn", job=1, lane=3),
        event(180, "RetryJob", job=1, attempt=2, past={"text": "killed by signal 9"}, estimate=None),
    ])  # fmt: skip
    state = [mark for mark in marks if mark.track.name == "state" and isinstance(mark, Begin)]
    assert [(mark.name, mark.arguments) for mark in state][-1] == ("queued", {"attempt": 2})
    assert [mark.value for mark in marks if mark.track.name == "persistent memory granted"] == [30, 0]  # type: ignore[union-attr]


def test_nothing_is_claimed_of_the_time_without_a_daemon() -> None:
    adopted = {"phase": "running", "device": "gpu0", "lane": 3, "granted": {"persistent": 30}, "attached": True}
    state = {"holds_turn": True, "wants_turn": False, "offloaded": False, "usage": USAGE, "started_us": 120}
    marks = timeline([
        *START,
        event(160, "GrantTurn", job=1, lane=3),
        event(170, "Sampled", job=1, usage=USAGE),
        event(500, "RestartBegan"),
        event(510, "Submitted", job=1, spec={"name": "first", "owner": 5}),
        event(520, "Adopted", job=1, **adopted, **state),
    ])  # fmt: skip
    (lane,) = (those for track, those in slices(marks).items() if track.name == "lane 3")
    assert lane == [(at(160), at(170), "job 1 first"), (at(520), at(520), "job 1 first")]


def test_what_others_do_is_not_shown() -> None:
    """Of another user's job an event has its kind only."""
    hidden = event(160, "Submitted")
    assert followed([*START, hidden.__class__(160, hidden.time_us, 160, "TurnReleased", 9, {})]) == followed(START)


def test_the_wall_clock_may_be_set() -> None:
    late = [event(1000 + step * 1000, "Tick", late_us=step * 10) for step in range(5)]
    hour_us = 3_600_000_000
    later = [event(10_000, "RestartEnded"), event(20_000, "RestartEnded", late_us=hour_us)]
    before, after = followed([*late, *later])
    assert (before.time_ns, after.time_ns) == (at(10_000), at(20_000 + hour_us))
