"""Chrome's trace format, as JSON: what chrome://tracing, Perfetto and most viewers of profiles open.

The form is that of torch.profiler: times in microseconds after ``baseTimeNanoseconds``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

import msgspec

from carpool.timeline.marks import Begin, End, Mark, Point, Track, TrackGroup


class ChromeFile:
    """Writes marks to a file as they come."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._base_ns: int | None = None
        self._groups: dict[TrackGroup, int] = {}
        self._tracks: dict[Track, int] = {}
        self._flows: set[int] = set()
        self._encode = msgspec.json.Encoder().encode

    def write(self, marks: Iterable[Mark]) -> None:
        """All of them, and the end of the file."""
        for mark in marks:
            if self._base_ns is None:
                self._base_ns = mark.time_ns
                self._file.write(b'{"displayTimeUnit":"ms","baseTimeNanoseconds":%d,"traceEvents":[\n' % mark.time_ns)
                self._file.write(b"{}")  # so that a comma precedes each event
            self._mark(mark, (mark.time_ns - self._base_ns) / 1000)
        self._file.write(b"\n]}\n" if self._base_ns is not None else b'{"traceEvents":[]}\n')

    def _mark(self, mark: Mark, ts: float) -> None:
        place = {"ts": ts, **self._place(mark.track)}
        if isinstance(mark, Begin):
            self._event(ph="B", name=mark.name, args=mark.arguments, **place)
            for flow in mark.flows:
                self._flow(flow, place)
        elif isinstance(mark, End):
            self._event(ph="E", args=mark.arguments, **place)
        elif isinstance(mark, Point):
            self._event(ph="i", s="t", name=mark.name, args=mark.arguments, **place)
        else:
            self._event(ph="C", name=mark.track.name, args={mark.track.unit: mark.value}, **place)

    def _flow(self, flow: int, place: dict[str, Any]) -> None:
        """From the first slice that has the number to the others."""
        first = flow not in self._flows
        self._flows.add(flow)
        kind = {"ph": "s"} if first else {"ph": "t", "bp": "e"}
        self._event(name="turn", cat="flow", id=flow, **kind, **place)

    def _place(self, track: Track) -> dict[str, int]:
        number = self._tracks.get(track)
        if number is None:
            number = self._add(track)
        return {"pid": self._groups[track.group], "tid": number}

    def _add(self, track: Track) -> int:
        group = self._groups.get(track.group)
        if group is None:
            group = self._groups[track.group] = len(self._groups) + 1
            self._about("process_name", {"name": track.group.name}, group, 0)
            self._about("process_sort_index", {"sort_index": track.group.rank}, group, 0)
        number = self._tracks[track] = len(self._tracks) + 1
        if not track.unit:
            self._about("thread_name", {"name": track.name}, group, number)
            self._about("thread_sort_index", {"sort_index": track.rank}, group, number)
        return number

    def _about(self, name: str, args: dict[str, Any], pid: int, tid: int) -> None:
        self._event(ph="M", name=name, ts=0, pid=pid, tid=tid, args=args)

    def _event(self, **fields: Any) -> None:
        self._file.write(b",\n" + self._encode(fields))
