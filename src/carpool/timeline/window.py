"""A part of a timeline: a stretch of time, one job, or one device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from carpool.timeline.marks import Begin, End, Mark, Track, Value


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
