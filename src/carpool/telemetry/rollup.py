"""Rolled-up samples: least, sum and most of each quantity in a stretch of time.  Two roll-ups add up exactly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from carpool.core.model import Micros
from carpool.telemetry.sample import Sample

#: Quantities that are kept for the past.
KEPT = (
    "busy_ppm",
    "sm_active_ppm",
    "sm_occupancy_ppm",
    "dram_active_ppm",
    "moved_bytes_per_s",
    "jobs_busy_ppm",
    "used_bytes",
    "foreign_bytes",
    "power_mw",
    "temperature_c",
)


class RollupSpan(NamedTuple):
    """At least one value of one quantity."""

    least: int
    total: int
    most: int
    samples: int

    def with_(self, other: RollupSpan) -> RollupSpan:
        return RollupSpan(
            min(self.least, other.least),
            self.total + other.total,
            max(self.most, other.most),
            self.samples + other.samples,
        )

    @property
    def mean(self) -> int:
        """The mean, rounded."""
        return round(self.total / self.samples)


Spans = dict[str, RollupSpan]


def spans_of(sample: Sample) -> Spans:
    """Return a span for each kept quantity that the sample has."""
    known = ((name, getattr(sample, name)) for name in KEPT)
    return {name: RollupSpan(value, value, value, 1) for name, value in known if value is not None}


def add(into: Spans, more: Spans) -> None:
    """Add the spans ``more`` to those of ``into``, which changes."""
    for name, span in more.items():
        before = into.get(name)
        into[name] = span if before is None else before.with_(span)


def buckets(parts: Iterable[tuple[Micros, Spans]], step: Micros) -> dict[Micros, Spans]:
    """Sum the parts by the begin of the step they lie in, in order; steps without a part are absent."""
    found: dict[Micros, Spans] = {}
    for when, spans in parts:
        add(found.setdefault(begin(when, step), {}), spans)
    return dict(sorted(found.items()))


def begin(when: Micros, step: Micros) -> Micros:
    """Return the begin of the step of ``step`` microseconds in which ``when`` lies."""
    return when - when % step
