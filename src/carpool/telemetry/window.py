"""The last samples of a device: the age of the latest, and recent values."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from carpool.core.model import Micros
from carpool.telemetry.sample import CapabilityLevel, Sample

WAITING = "not measured yet"


@dataclass(frozen=True, slots=True)
class WindowState:
    """The present state of a device as far as it is known.

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
