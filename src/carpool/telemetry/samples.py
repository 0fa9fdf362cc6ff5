"""The measurements of one device at one moment.

Rolled-up samples: least, sum and most of each quantity in a stretch of time.  Two roll-ups add up exactly.

The last samples of a device: the age of the latest, and recent values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import NamedTuple

from carpool.core.model import JobId, Micros

#: Owner of processes that belong to Carpool itself.
CARPOOL: JobId = 0


class Unmeasurable(Exception):
    """A device could not be measured; the text gives users the reason."""


class Unavailable(Unmeasurable):
    """This machine has no telemetry for devices of this kind; the device itself may be fine."""


class CapabilityLevel(StrEnum):
    """The extent of measurement."""

    GPM = "gpm"  # a GPU with the counters of its multiprocessors and its memory
    BASIC = "basic"  # a GPU without them
    HOST = "host"  # a host device: figures of the machine's kernel
    NONE = "none"  # nothing is measured at present


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """A process on a device.  ``owner`` is a job, `CARPOOL`, or None for a process that is not Carpool's.

    ``used_bytes``: on a GPU, its memory; on a host device, private memory, which is not part of the device's.
    ``busy_us``: how long the device computed for the process since the previous sample.
    """

    pid: int
    used_bytes: int | None  # None: the driver does not say
    owner: JobId | None = None
    busy_us: Micros | None = None  # None: not measured


@dataclass(frozen=True, slots=True)
class Sample:
    """A quantity is None if it was not measured; ``missing`` says why.  ``*_ppm`` are millionths of the maximum."""

    taken_us: Micros  # the core's clock
    level: CapabilityLevel
    reason: str = ""  # why the level is not a higher one
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None
    foreign_bytes: int | None = None
    processes: tuple[ProcessMemory, ...] | None = None
    busy_ppm: int | None = None
    memory_busy_ppm: int | None = None
    sm_active_ppm: int | None = None
    sm_occupancy_ppm: int | None = None
    dram_active_ppm: int | None = None
    moved_bytes_per_s: int | None = None
    jobs_busy_ppm: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    energy_mj: int | None = None
    temperature_c: int | None = None
    clock_mhz: int | None = None
    clock_limit_mhz: int | None = None
    throttled: tuple[str, ...] | None = None
    mig: bool | None = None
    mps: bool | None = None
    missing: Mapping[str, str] = field(default_factory=dict)  # quantity: why it was not measured


#: Quantities that a sample may lack.
QUANTITIES = tuple(each.name for each in fields(Sample) if each.default is None)


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
        """Return the span of both together."""
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


WAITING = "not measured yet"


@dataclass(frozen=True, slots=True)
class WindowState:
    """The known part of the present state of a device.

    ``age_us`` is the age of the last sample, even if that sample no longer counts.
    """

    level: CapabilityLevel
    reason: str
    age_us: Micros | None = None
    sample: Sample | None = None  # None where the level is NONE


class Window:
    """Samples of the last ``span_us``.  A sample that is older than ``stale_us`` no longer describes the present."""

    def __init__(self, span_us: Micros, stale_us: Micros) -> None:
        self._span_us = span_us
        self._stale_us = stale_us
        self._samples: deque[Sample] = deque()
        self._failure = WAITING

    def add(self, sample: Sample) -> None:
        """Add a sample; samples come in the order in which they were taken."""
        self._samples.append(sample)
        self._failure = ""
        while self._samples[0].taken_us < sample.taken_us - self._span_us:
            self._samples.popleft()

    def fail(self, reason: str) -> None:
        """Note that the measurement after the last sample failed."""
        self._failure = reason

    def state(self, now: Micros) -> WindowState:
        """Return what is known of the device at ``now``, microseconds."""
        latest = self._samples[-1] if self._samples else None
        age = None if latest is None else max(0, now - latest.taken_us)
        if latest is None or age is None or self._failure:
            return WindowState(CapabilityLevel.NONE, self._failure, age)
        if age > self._stale_us:
            return WindowState(CapabilityLevel.NONE, f"no answer for {age // 1_000_000} s", age)
        return WindowState(latest.level, latest.reason, age, latest)

    @property
    def samples(self) -> list[Sample]:
        """The samples within ``span_us`` before the latest, oldest first."""
        return list(self._samples)

    def recent(self, now: Micros) -> list[Sample]:
        """Return the samples within ``span_us`` before ``now``, oldest first."""
        return [sample for sample in self._samples if sample.taken_us >= now - self._span_us]


def values(samples: Sequence[Sample], quantity: str) -> list[int]:
    """Return the values of a quantity in the samples that have it, oldest first."""
    return [value for sample in samples if (value := getattr(sample, quantity)) is not None]


def mean(samples: Sequence[Sample], quantity: str) -> int | None:
    """Return the rounded mean of a quantity over the samples that have it; None if none has."""
    known = values(samples, quantity)
    return None if not known else round(sum(known) / len(known))
