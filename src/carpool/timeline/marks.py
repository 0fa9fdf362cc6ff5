"""The parts of a timeline: marks on tracks, in the order of time.

Times are nanoseconds of the wall clock, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

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
