"""The file has every mark, names, times, arguments, arrows and tracks, and a part of it whole slices."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.timeline.chrome_file import ChromeFile
from carpool.timeline.window import Mark, Point, Value
from tests.corpus.journals import names
from tests.timeline.recorded import chrome_slices, events, followed, slices, timeline


def chrome(marks: Sequence[Mark]) -> dict[str, Any]:
    file = io.BytesIO()
    ChromeFile(file).write(marks)
    trace: dict[str, Any] = json.loads(file.getvalue())
    return trace


@pytest.mark.parametrize("name", names())
def test_chromes_format_has_every_slice(name: str) -> None:
    marks = timeline(events(name))
    trace = chrome(marks)
    base = trace["baseTimeNanoseconds"]
    rows = [event for event in trace["traceEvents"] if event]
    found = Counter(
        (each.group, each.track, base + round(each.begin * 1000), base + round(each.end * 1000), each.name)
        for each in chrome_slices(trace)
    )
    assert found == Counter(
        (track.group.name, track.name, *each) for track, those in slices(marks).items() for each in those
    )
    kinds = Counter(row["ph"] for row in rows)
    assert kinds["i"] == sum(isinstance(mark, Point) for mark in marks)
    assert kinds["C"] == sum(isinstance(mark, Value) for mark in marks)


def test_arrows_in_chromes_format_begin_once() -> None:
    marks = timeline(events("lanes"))
    arrows = [row for row in chrome(marks)["traceEvents"] if row and row["ph"] in "stf"]
    first = Counter(row["id"] for row in arrows if row["ph"] == "s")
    assert len(first) > 10 and set(first.values()) == {1}
    assert {row["id"] for row in arrows} == set(first)


EVENTS = events("lanes")
ALL = slices(timeline(EVENTS))
FIRST, LAST = followed(EVENTS)[0].time_ns, followed(EVENTS)[-1].time_ns


@given(st.lists(st.integers(FIRST - 1000, LAST + 1000), min_size=2, max_size=2, unique=True))
def test_slices_are_cut_to_the_time_that_is_asked_for(bounds: list[int]) -> None:
    since, until = sorted(bounds)
    found = slices(timeline(EVENTS, since_ns=since, until_ns=until))
    for track, those in found.items():
        assert all(since <= begin <= end <= until for begin, end, _ in those)
        whole = sum(max(0, min(end, until) - max(begin, since)) for begin, end, _ in ALL[track])
        assert sum(end - begin for begin, end, _ in those) == whole
    missing = [track for track in ALL if track not in found]
    assert not any(max(begin, since) < min(end, until) for track in missing for begin, end, _ in ALL[track])


def test_counters_begin_with_the_values_that_they_have() -> None:
    middle = (FIRST + LAST) // 2
    marks = timeline(EVENTS, since_ns=middle)
    granted = [mark for mark in marks if isinstance(mark, Value) and mark.track.name == "persistent memory granted"]
    before = [
        mark for mark in followed(EVENTS)
        if isinstance(mark, Value) and mark.track == granted[0].track and mark.time_ns < middle
    ]  # fmt: skip
    assert (granted[0].time_ns, granted[0].value) == (middle, before[-1].value)


def test_a_job_alone_has_its_tracks_and_its_turns() -> None:
    numbers = {track.job for track in ALL if track.job is not None}
    assert len(numbers) > 1
    (one, *_) = sorted(numbers)
    found = slices(timeline(EVENTS, job=one))
    assert {track.job for track in found} == {one, None}
    for track, those in found.items():
        if track.job is None:
            assert {name.split()[1] for _, _, name in those} == {str(one)}


def test_a_device_alone_has_its_lanes_and_its_jobs() -> None:
    several = events("several-devices")
    devices = {track.device for track in slices(timeline(several)) if track.device}
    assert len(devices) > 1
    for device in devices:
        found = slices(timeline(several, device=device, jobs_there=frozenset({1})))
        assert {track.device for track in found if track.device} == {device}
        assert {track.job for track in found} <= {None, 1}


def test_a_time_without_anything_is_empty_and_a_file_all_the_same() -> None:
    assert timeline(EVENTS, until_ns=FIRST - 1) == []
    assert chrome([]) == {"traceEvents": []}
