"""Recorded journals as the API gives them, and what has to be true of all marks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from carpool.cli.render.event_words import happened
from carpool.protocol.api import EventInfo
from carpool.timeline.follower import Follower
from carpool.timeline.window import Begin, End, Mark, TimelinePart, Track
from tests.corpus.journals import read

#: Of the wall clock when the clock of the core began.
EPOCH_US = 1_700_000_000_000_000


def event(now_us: int, kind: str, late_us: int = 0, **data: Any) -> EventInfo:
    """``late_us``: until it was recorded."""
    return EventInfo(now_us, EPOCH_US + now_us + late_us, now_us, kind, data.get("job"), data)


def events(name: str) -> list[EventInfo]:
    """Of a journal in `tests/corpus`."""
    rows = read(name).rows
    return [event(row.now_us, row.kind, (row.seq - 1) % 300, **json.loads(row.data)) for row in rows]


def followed(found: Iterable[EventInfo]) -> list[Mark]:
    return list(Follower(happened).follow(found))


def timeline(found: Iterable[EventInfo], **part: Any) -> list[Mark]:
    return list(TimelinePart(**part).of(Follower(happened).follow(found)))


def slices(marks: Sequence[Mark]) -> dict[Track, list[tuple[int, int, str]]]:
    """Begin, end and name of each, by track.  Fails where marks are out of order, or slices without a partner."""
    found: dict[Track, list[tuple[int, int, str]]] = defaultdict(list)
    opened: dict[Track, list[Begin]] = defaultdict(list)
    latest = 0
    for mark in marks:
        assert mark.time_ns >= latest
        latest = mark.time_ns
        if isinstance(mark, Begin):
            opened[mark.track].append(mark)
        elif isinstance(mark, End):
            begin = opened[mark.track].pop()
            found[mark.track].append((begin.time_ns, mark.time_ns, begin.name))
    assert not any(opened.values())
    return found


class ChromeSlice(NamedTuple):
    """Times in microseconds, after the ``baseTimeNanoseconds`` of the file."""

    group: str
    track: str
    name: str
    begin: float
    end: float


def chrome_slices(trace: dict[str, Any]) -> list[ChromeSlice]:
    """Of what a file in Chrome's format has.  Fails on slices without a partner."""
    rows = [row for row in trace["traceEvents"] if row]
    groups = {row["pid"]: row["args"]["name"] for row in rows if row.get("name") == "process_name"}
    tracks = {(row["pid"], row["tid"]): row["args"]["name"] for row in rows if row.get("name") == "thread_name"}
    opened: dict[Any, list[Any]] = {}
    found = []
    for row in rows:
        place = row["pid"], row["tid"]
        if row["ph"] == "B":
            opened.setdefault(place, []).append(row)
        elif row["ph"] == "E":
            begin = opened[place].pop()
            found.append(ChromeSlice(groups[row["pid"]], tracks[place], begin["name"], begin["ts"], row["ts"]))
    assert not any(opened.values())
    return found
