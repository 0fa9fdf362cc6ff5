"""The measured workloads of ``carpool/sim/data`` as makers of jobs."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from carpool.sim.model.trace_job import ASSUMED_ITERATION_US, WHOLE_PPM, TraceJob


@dataclass(frozen=True, slots=True)
class Workload:
    """A model with a batch size; times are microseconds, sizes bytes."""

    name: str  # as in "resnet50_50"
    iteration_us: int
    persistent: int
    ephemeral: int

    def job(self, number: int, submit_us: int, length_us: float, utilization: float, gpus: int = 1) -> TraceJob:
        """Make a job of whole iterations, as close to ``length_us`` as possible, and at least one.

        The job has no start-up and no host time.
        """
        iterations = max(1, round(length_us / self.iteration_us))
        return TraceJob(
            id=f"{number}-{self.name}",
            submit_us=submit_us,
            duration_us=iterations * self.iteration_us,
            gpus=gpus,
            iterations=iterations,
            iteration_us=self.iteration_us,
            persistent=self.persistent,
            ephemeral=self.ephemeral,
            utilization_ppm=millionths(utilization),
            model=self.name,
        )


def millionths(share: float) -> int:
    """Return a share from 0 to 1 in parts per million, at least one: every job uses its device a little."""
    return max(1, round(share * WHOLE_PPM))


@cache
def training() -> tuple[Workload, ...]:
    """Return Salus's training workloads, with measured iterations."""
    return _load("salus_training.csv")


@cache
def inference() -> tuple[Workload, ...]:
    """Return the inference workloads; their iterations have no measured time, which the caller sets."""
    return _load("salus_inference.csv")


def workload(name: str) -> Workload:
    """Return a training workload by its name."""
    return next(each for each in training() if each.name == name)


def _load(name: str) -> tuple[Workload, ...]:
    text = resources.files("carpool.sim").joinpath("data", name).read_text(encoding="utf-8")
    return tuple(
        Workload(
            name=f"{row['model']}_{row['batch_size']}",
            iteration_us=round(float(row.get("iteration_ms") or 0) * 1000) or ASSUMED_ITERATION_US,
            persistent=_bytes(row["persistent_mib"]),
            ephemeral=_bytes(row["ephemeral_mib"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def _bytes(mebibytes: str) -> int:
    return round(float(mebibytes) * (1 << 20))
