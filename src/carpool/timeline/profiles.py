"""Traces of `torch.profiler` (``export_chrome_trace``) as marks: both use the wall clock.

Source of the format: Kineto writes complete events (``ph`` is ``X``) with ``ts`` and ``dur`` in microseconds after
``baseTimeNanoseconds``, which counts from 1970.
"""

from __future__ import annotations

import gzip
import heapq
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from carpool.timeline.window import Argument, Begin, End, Mark, Track, TrackGroup, time_of

#: Rank of profiles: after all jobs.
PROFILE = 1_000_000_000


class BadProfile(ValueError):
    """The file is not a trace of torch.profiler; the text gives the reason and what to do."""


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    ts: float | str = 0
    dur: float = 0.0
    pid: int | str = 0
    tid: int | str = 0
    args: Mapping[str, Any] = {}


class _Trace(msgspec.Struct):
    trace_events: list[_Event] = msgspec.field(name="traceEvents")
    base_ns: int | None = msgspec.field(name="baseTimeNanoseconds", default=None)


class _Slice(msgspec.Struct, frozen=True, order=True):
    """A slice.  Of slices that begin together the longer one sorts first, because it encloses the others."""

    begin_ns: int
    negative_ns: int
    name: str = ""
    arguments: Mapping[str, Argument] = {}

    @property
    def end_ns(self) -> int:
        return self.begin_ns - self.negative_ns


def profile_marks(path: Path) -> Iterator[Mark]:
    """Return the slices of each thread and stream as marks in order.  Raises OSError, BadProfile."""
    trace = _read(path)
    about = (event for event in trace.trace_events if event.ph == "M" and event.name == "thread_name")
    names = {(event.pid, event.tid): str(event.args.get("name", "")) for event in about}
    rows: dict[tuple[int | str, int | str], list[_Slice]] = {}
    for event in trace.trace_events:
        if event.ph == "X":
            rows.setdefault((event.pid, event.tid), []).append(_slice(event, trace.base_ns or 0))
    if not rows:
        raise BadProfile(f"{path} has no slice: write it with prof.export_chrome_trace after the profiler has stopped")
    tracks = [_of_row(path.name, row, names.get(row, ""), slices) for row, slices in rows.items()]
    return heapq.merge(*tracks, key=time_of)


def _read(path: Path) -> _Trace:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    try:
        trace = msgspec.json.decode(data, type=_Trace)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadProfile(f"{path} is not a trace of torch.profiler: {error}") from None
    if trace.base_ns is None:
        raise BadProfile(f"{path} has no baseTimeNanoseconds, so its times are unknown: PyTorch 2.4 and later write it")
    return trace


def _slice(event: _Event, base_ns: int) -> _Slice:
    arguments = {name: value for name, value in event.args.items() if isinstance(value, str | int | float | bool)}
    return _Slice(base_ns + round(float(event.ts) * 1000), -round(event.dur * 1000), event.name, arguments)


def _of_row(profile: str, row: tuple[int | str, int | str], name: str, slices: list[_Slice]) -> Iterator[Mark]:
    """Return the marks of one thread; slices that overlap without nesting get further tracks."""
    pid, tid = row
    group, title = TrackGroup(f"{profile}: process {pid}", PROFILE), name or f"thread {tid}"
    lines = _nested(sorted(slices))
    marks = [_marks(Track(group, title if not more else f"{title} ({more + 1})", more), line)
             for more, line in enumerate(lines)]  # fmt: skip
    return heapq.merge(*marks, key=time_of)


def _nested(slices: Iterable[_Slice]) -> list[list[_Slice]]:
    """Divide slices into as few lists as possible, in each of which slices either nest or do not overlap."""
    lines: list[tuple[list[_Slice], list[int]]] = []
    for each in slices:
        place = next((line for line in lines if _fits(each, line[1])), None)
        if place is None:
            lines.append(place := ([], []))
        place[0].append(each)
        place[1].append(each.end_ns)
    return [line for line, _ in lines]


def _fits(each: _Slice, open_ends: list[int]) -> bool:
    """Whether a slice lies within the innermost open slice.  Drops ends that have passed from ``open_ends``."""
    while open_ends and open_ends[-1] <= each.begin_ns:
        open_ends.pop()
    return not open_ends or each.end_ns <= open_ends[-1]


def _marks(track: Track, slices: Iterable[_Slice]) -> Iterator[Mark]:
    ends: list[int] = []
    for each in slices:
        while ends and ends[-1] <= each.begin_ns:
            yield End(ends.pop(), track)
        yield Begin(each.begin_ns, track, each.name, each.arguments)
        ends.append(each.end_ns)
    while ends:
        yield End(ends.pop(), track)
