"""Predicted completion times beside the real ones, job by job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from carpool.core.model import Micros, Outcome
from carpool.core.stats import percentile_x100
from carpool.core.units import SECOND_US
from carpool.sim.model.result import JobResult
from carpool.sim.model.trace_job import WHOLE_PPM


@dataclass(frozen=True, slots=True)
class ComparedJob:
    """A job's completion time, from submission to end, as it was and as it was simulated; ``real_us``: at least 1."""

    id: str
    name: str
    real_us: Micros
    predicted_us: Micros

    @property
    def error_ppm(self) -> int:
        """The distance of the two, in millionths of the real time."""
        return abs(self.predicted_us - self.real_us) * WHOLE_PPM // self.real_us


@dataclass(frozen=True, slots=True)
class Comparison:
    """``jobs``: in the order of the trace; without any there are no means and percentiles."""

    jobs: Sequence[ComparedJob]

    @property
    def predicted_mean_s(self) -> float:
        """The mean completion time in the simulation."""
        return self._mean_s([job.predicted_us for job in self.jobs])

    @property
    def real_mean_s(self) -> float:
        """The mean completion time as it was."""
        return self._mean_s([job.real_us for job in self.jobs])

    @property
    def mean_error(self) -> float:
        """The distance of the two means, as a share of the real one."""
        return abs(self.predicted_mean_s - self.real_mean_s) / self.real_mean_s

    def error(self, percent: int) -> float:
        """Return a percentile of the jobs' errors, as a share."""
        return percentile_x100(sorted(job.error_ppm for job in self.jobs), percent) / (100 * WHOLE_PPM)

    def worst(self, count: int) -> list[ComparedJob]:
        """Return the jobs with the largest errors, the worst first."""
        return sorted(self.jobs, key=lambda job: (-job.error_ppm, job.id))[:count]

    def _mean_s(self, times_us: Sequence[Micros]) -> float:
        return sum(times_us) / (len(times_us) * SECOND_US)


def compare(results: Iterable[JobResult], real_us: Mapping[str, Micros]) -> Comparison:
    """Compare the jobs whose real completion times are known, by id; those that the simulation refused are left out."""
    found = (each for each in results if each.job.id in real_us and each.outcome is not Outcome.REFUSED)
    return Comparison(
        [ComparedJob(each.job.id, each.job.model, max(1, real_us[each.job.id]), each.jct_us) for each in found]
    )
