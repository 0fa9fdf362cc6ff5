"""The file has every mark: names, times, arguments, arrows, tracks.  No viewer reads it here."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from carpool.timeline.chrome_file import ChromeFile
from carpool.timeline.marks import Mark, Point, Value
from tests.corpus.journals import names
from tests.timeline.recorded import chrome_slices, events, slices, timeline


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


def test_a_timeline_without_anything_is_a_file_all_the_same() -> None:
    assert chrome([]) == {"traceEvents": []}
