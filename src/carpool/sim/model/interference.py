"""How jobs that compute on one device at the same time slow each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob


class Interference(Protocol):
    """A replaceable model: any class with a name and this method."""

    name: str

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        """Return each job's speed in parts per million of its speed alone, for all jobs that compute on the device."""


class Concurrent:
    """Lanes compute at the same time (MPS; the host device): no job is slowed until the device is full.

    speed = min(1, 1 / sum of utilizations) / (1 + loss * (jobs - 1)): kernels share the device in proportion to what
    they would use alone; in addition, each further job slows every job by ``loss_ppm`` (caches, memory bandwidth).
    """

    name = "concurrent"

    def __init__(self, loss_ppm: int = 0) -> None:
        self._loss_ppm = loss_ppm

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        total = sum(job.demand_ppm for job in jobs)
        speed = min(WHOLE_PPM, WHOLE_PPM * WHOLE_PPM // max(total, 1))
        slowed = speed * WHOLE_PPM // (WHOLE_PPM + self._loss_ppm * max(0, len(jobs) - 1))
        return [max(1, slowed)] * len(jobs)


class Timeslice:
    """The driver gives whole slices of the device in turn (CUDA contexts without MPS): n lanes get 1/n each."""

    name = "timeslice"

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        return [WHOLE_PPM // max(len(jobs), 1)] * len(jobs)


class Checked:
    """A user's model: its answer must be a speed for each job.  Raises ValueError that names the class."""

    def __init__(self, model: Interference) -> None:
        self.name = model.name
        self._model = model

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        try:
            speeds: Any = self._model.speeds(jobs)
        except Exception as error:
            raise ValueError(f"{self._who()} failed: {type(error).__name__}: {error}") from error
        if not isinstance(speeds, Sequence) or len(speeds) != len(jobs):
            raise ValueError(
                f"{self._who()} returned {speeds!r}; it must return one speed for each of {len(jobs)} jobs"
            )
        for speed in speeds:
            if not isinstance(speed, int) or not 1 <= speed <= WHOLE_PPM:
                raise ValueError(
                    f"{self._who()} returned {speed!r}; a speed is a whole number of millionths, 1 to 1000000"
                )
        return speeds

    def _who(self) -> str:
        return f"{type(self._model).__name__}.speeds"
