"""What a timeline consists of: marks on tracks, in the order of time.

Times are nanoseconds of the wall clock, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Argument = str | int | float | bool


class TrackGroup(NamedTuple):
    """Tracks that belong together: those of a device, of a job, of a profiled process.  ``rank``: its place."""

    name: str
    rank: int = 0


class Track(NamedTuple):
    """``unit``: that of a counter's values; empty: the track has slices and points.

    ``job`` and ``device``: whose track this is, for who wants to see that one only.
    """

    group: TrackGroup
    name: str
    rank: int = 0
    unit: str = ""
    job: int | None = None
    device: str | None = None


class Begin(NamedTuple):
    """A slice begins, inside of those that are open on its track.  ``flows``: arrows that it shares with others."""

    time_ns: int
    track: Track
    name: str
    arguments: Mapping[str, Argument] = {}
    flows: tuple[int, ...] = ()
    job: int | None = None  # that the slice is about, on a track that is not the job's own


class End(NamedTuple):
    """The innermost open slice of a track ends.  ``arguments``: what was not known before."""

    time_ns: int
    track: Track
    arguments: Mapping[str, Argument] = {}


class Point(NamedTuple):
    """Something happened."""

    time_ns: int
    track: Track
    name: str
    arguments: Mapping[str, Argument] = {}


class Value(NamedTuple):
    """A counter's value from now on."""

    time_ns: int
    track: Track
    value: float


Mark = Begin | End | Point | Value


def time_of(mark: Mark) -> int:
    """By which marks of several sources are merged."""
    return mark.time_ns
