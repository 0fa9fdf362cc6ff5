"""A part of a timeline: a stretch of time, one job, or one device.

The parts of a timeline: marks on tracks, in the order of time.

Times are nanoseconds of the wall clock, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

Argument = str | int | float | bool


class TrackGroup(NamedTuple):
    """Tracks that belong together: those of a device, of a job, of a profiled process.  ``rank``: position in the
    viewer.
    """

    name: str
    rank: int = 0


class Track(NamedTuple):
    """``unit``: that of a counter's values; empty: the track has slices and points.

    ``job`` and ``device``: the owner of this track, for timelines of one job or device only.
    """

    group: TrackGroup
    name: str
    rank: int = 0
    unit: str = ""
    job: int | None = None
    device: str | None = None


class Begin(msgspec.Struct, frozen=True):
    """A slice begins, nested in the open slices of its track.  ``flows``: arrows that it shares with other slices."""

    time_ns: int
    track: Track
    name: str
    arguments: Mapping[str, Argument] = {}
    flows: tuple[int, ...] = ()
    job: int | None = None  # the job that the slice is about, on a track that is not the job's own


class End(msgspec.Struct, frozen=True):
    """The innermost open slice of a track ends.  ``arguments``: facts that were not known at its begin."""

    time_ns: int
    track: Track
    arguments: Mapping[str, Argument] = {}


class Point(msgspec.Struct, frozen=True):
    """An event without a duration."""

    time_ns: int
    track: Track
    name: str
    arguments: Mapping[str, Argument] = {}


class Value(msgspec.Struct, frozen=True):
    """The value of a counter from this time on."""

    time_ns: int
    track: Track
    value: float


Mark = Begin | End | Point | Value


def time_of(mark: Mark) -> int:
    """Return the time of a mark, the key by which marks of several sources are merged."""
    return mark.time_ns


@dataclass
class TimelinePart:
    """``since_ns`` and ``until_ns``: wall clock; ``jobs_there``: the jobs of ``device``.

    Slices that were open before the part begin with it, and slices that are still open at its end, or at the end of the
    whole timeline, end there.
    """

    since_ns: int = 0
    until_ns: int | None = None
    job: int | None = None
    device: str | None = None
    jobs_there: frozenset[int] = frozenset()
    _open: dict[Track, list[Begin]] = field(default_factory=dict)
    _values: dict[Track, Value] = field(default_factory=dict)
    _begun: bool = False

    def of(self, marks: Iterable[Mark]) -> Iterator[Mark]:
        """Yield the marks of this part, in the order of ``marks``."""
        latest_ns = self.since_ns
        for mark in marks:
            if self.until_ns is not None and mark.time_ns > self.until_ns:
                latest_ns = self.until_ns
                break
            if not self._shows(mark):
                continue
            latest_ns = max(latest_ns, mark.time_ns)
            if mark.time_ns >= self.since_ns:
                yield from self._beginning()
                yield mark
            self._keep(mark)
        yield from self._beginning()
        yield from self._ending(latest_ns)

    def _shows(self, mark: Mark) -> bool:
        """Whether the mark belongs to this part; an end does if its slice does."""
        if type(mark) is End:
            return bool(self._open.get(mark.track))
        job = (mark.job if type(mark) is Begin else None) or mark.track.job
        if self.job is not None and job != self.job:
            return False
        return self.device is None or mark.track.device == self.device or mark.track.job in self.jobs_there

    def _keep(self, mark: Mark) -> None:
        if type(mark) is Begin:
            self._open.setdefault(mark.track, []).append(mark)
        elif type(mark) is End:
            slices = self._open[mark.track]
            slices.pop()
            if not slices:
                del self._open[mark.track]
        elif type(mark) is Value and not self._begun:
            self._values[mark.track] = mark

    def _beginning(self) -> Iterator[Mark]:
        """Yield, on the first call only, the slices open at the beginning and the values that counters had."""
        if self._begun:
            return
        self._begun = True
        for slices in self._open.values():
            yield from (replace(begin, time_ns=self.since_ns) for begin in slices)
        yield from (replace(value, time_ns=self.since_ns) for value in self._values.values())

    def _ending(self, at_ns: int) -> Iterator[Mark]:
        for track, slices in self._open.items():
            yield from (End(at_ns, track, {"end": "still open"}) for _ in slices)
