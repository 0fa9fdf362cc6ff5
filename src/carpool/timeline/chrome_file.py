"""Chrome's trace format, as JSON, which chrome://tracing, Perfetto and most viewers of profiles open.

The form is that of torch.profiler: times in microseconds after ``baseTimeNanoseconds``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

import msgspec

from carpool.timeline.window import Begin, End, Mark, Point, Track, TrackGroup, Value

#: Events that are written together.
AT_ONCE = 500


class ChromeFile:
    """Writes marks to a file as they come."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._base_ns: int | None = None
        self._groups: dict[TrackGroup, int] = {}
        self._places: dict[Track, tuple[int, int]] = {}
        self._flows: set[int] = set()
        self._encode = msgspec.json.Encoder().encode
        self._lines = [b""]  # a comma precedes each event

    def write(self, marks: Iterable[Mark]) -> None:
        """Write all marks, and then the end of the file."""
        for mark in marks:
            if self._base_ns is None:
                self._base_ns = mark.time_ns
                self._file.write(b'{"displayTimeUnit":"ms","baseTimeNanoseconds":%d,"traceEvents":[\n' % mark.time_ns)
                self._file.write(b"{}")
            self._mark(mark, (mark.time_ns - self._base_ns) / 1000)
            if len(self._lines) > AT_ONCE:
                self._write_lines()
        self._write_lines()
        self._file.write(b"\n]}\n" if self._base_ns is not None else b'{"traceEvents":[]}\n')

    def _mark(self, mark: Mark, ts: float) -> None:
        track = mark.track
        pid, tid = self._places.get(track) or self._add(track)
        if type(mark) is Begin:
            self._event({"ph": "B", "name": mark.name, "args": mark.arguments, "ts": ts, "pid": pid, "tid": tid})
            for flow in mark.flows:
                self._flow(flow, {"ts": ts, "pid": pid, "tid": tid})
        elif type(mark) is End:
            self._event({"ph": "E", "args": mark.arguments, "ts": ts, "pid": pid, "tid": tid})
        elif type(mark) is Point:
            about = {"name": mark.name, "args": mark.arguments}
            self._event({"ph": "i", "s": "t", **about, "ts": ts, "pid": pid, "tid": tid})
        elif type(mark) is Value:
            about = {"name": track.name, "args": {track.unit: mark.value}}
            self._event({"ph": "C", **about, "ts": ts, "pid": pid, "tid": tid})

    def _flow(self, flow: int, place: dict[str, Any]) -> None:
        """Write a flow event: the first slice with this number starts the arrow, later slices continue it."""
        first = flow not in self._flows
        self._flows.add(flow)
        kind = {"ph": "s"} if first else {"ph": "t", "bp": "e"}
        self._event({"name": "turn", "cat": "flow", "id": flow, **kind, **place})

    def _add(self, track: Track) -> tuple[int, int]:
        group = self._groups.get(track.group)
        if group is None:
            group = self._groups[track.group] = len(self._groups) + 1
            self._about("process_name", {"name": track.group.name}, group, 0)
            self._about("process_sort_index", {"sort_index": track.group.rank}, group, 0)
        number = len(self._places) + 1
        self._places[track] = group, number
        if not track.unit:
            self._about("thread_name", {"name": track.name}, group, number)
            self._about("thread_sort_index", {"sort_index": track.rank}, group, number)
        return group, number

    def _about(self, name: str, args: dict[str, Any], pid: int, tid: int) -> None:
        self._event({"ph": "M", "name": name, "ts": 0, "pid": pid, "tid": tid, "args": args})

    def _event(self, fields: dict[str, Any]) -> None:
        self._lines.append(self._encode(fields))

    def _write_lines(self) -> None:
        self._file.write(b",\n".join(self._lines))
        self._lines = [b""]
