"""Both formats have every mark: names, times, arguments, arrows, tracks.  No viewer reads them here."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from carpool.timeline.chrome_file import ChromeFile
from carpool.timeline.marks import Begin, End, Mark, Point, Value
from tests.corpus.journals import names
from tests.timeline.recorded import chrome_slices, events, slices, timeline


def chrome(marks: Sequence[Mark]) -> dict[str, Any]:
    file = io.BytesIO()
    ChromeFile(file).write(marks)
    trace: dict[str, Any] = json.loads(file.getvalue())
    return trace


def perfetto(marks: Sequence[Mark]) -> Any:
    pytest.importorskip("perfetto", reason="the package perfetto is not installed (requirements-dev.lock)")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    from carpool.timeline.perfetto_file import PerfettoFile

    file = io.BytesIO()
    PerfettoFile(file).write(marks)
    trace = Trace()
    trace.ParseFromString(file.getvalue())
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


@pytest.mark.parametrize("name", names())
def test_perfettos_format_has_every_mark(name: str) -> None:
    marks = timeline(events(name))
    about, rows = {}, []
    for packet in perfetto(marks).packet:
        if packet.HasField("track_descriptor"):
            about[packet.track_descriptor.uuid] = packet.track_descriptor
        elif packet.HasField("track_event"):
            assert packet.track_event.track_uuid in about  # described before it is used
            rows.append(packet)
    assert len(rows) == len(marks)
    for mark, row in zip(marks, rows, strict=True):
        event = row.track_event
        track = about[event.track_uuid]
        assert (row.timestamp, track.name, about[track.parent_uuid].name) == (
            mark.time_ns, mark.track.name, mark.track.group.name,
        )  # fmt: skip
        assert event.type == {Begin: 1, End: 2, Point: 3, Value: 4}[type(mark)]
        assert event.name == (mark.name if isinstance(mark, Begin | Point) else "")
        assert tuple(event.flow_ids) == (mark.flows if isinstance(mark, Begin) else ())
        assert {note.name for note in event.debug_annotations} == set(getattr(mark, "arguments", ()))
        assert track.counter.unit_name == mark.track.unit


def test_perfettos_times_are_those_of_the_wall_clock() -> None:
    first, second, *_ = perfetto(timeline(events("lanes"))).packet
    assert first.trace_packet_defaults.timestamp_clock_id == 1
    assert {clock.clock_id for clock in second.clock_snapshot.clocks} == {1, 3, 6}


def test_arrows_in_chromes_format_begin_once() -> None:
    marks = timeline(events("lanes"))
    arrows = [row for row in chrome(marks)["traceEvents"] if row and row["ph"] in "stf"]
    first = Counter(row["id"] for row in arrows if row["ph"] == "s")
    assert len(first) > 10 and set(first.values()) == {1}
    assert {row["id"] for row in arrows} == set(first)


def test_a_timeline_without_anything_is_a_file_all_the_same() -> None:
    assert chrome([]) == {"traceEvents": []}
