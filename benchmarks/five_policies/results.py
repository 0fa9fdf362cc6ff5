"""What a round of the demo measured, and the figures made from it.  Times are seconds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

from tools.demo.timeline import Timeline


@dataclass(frozen=True, slots=True)
class JobResult:
    name: str
    completion_s: float  # JCT: from the submission of the job to its end
    queueing_s: float  # waiting for a process or for the first turn
    weights: Path


@dataclass(frozen=True, slots=True)
class Round:
    """All jobs once.  ``timeline`` is None for the round without Carpool."""

    name: str
    jobs: tuple[JobResult, ...]
    makespan_s: float
    timeline: Timeline | None = None
    peaks: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> (P, E) in bytes
    names: dict[int, str] = field(default_factory=dict)  # of the job ids in the timeline

    @property
    def mean_jct_s(self) -> float:
        return statistics.fmean(job.completion_s for job in self.jobs)

    @property
    def p95_jct_s(self) -> float:
        return percentile([job.completion_s for job in self.jobs], 0.95)

    @property
    def mean_queueing_s(self) -> float:
        return statistics.fmean(job.queueing_s for job in self.jobs)


def percentile(values: list[float], share: float) -> float:
    """Linear between the two nearest ranks, as numpy does it by default."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
