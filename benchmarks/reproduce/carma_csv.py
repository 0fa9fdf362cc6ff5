"""The traces of CARMA's evaluation as jobs: ``submit_s, task, gpus, mem_mib, solo_minutes``."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

from carpool.core.model import MIB
from carpool.sim.generators.workloads import training
from carpool.sim.job import TraceJob

MINUTE_US = 60_000_000


def persistent_share() -> float:
    """CARMA measured peaks only.  Of the peak of Salus's 45 training workloads the median keeps this share."""
    return statistics.median(each.persistent / (each.persistent + each.ephemeral) for each in training())


def read_carma(path: Path, share: float) -> list[TraceJob]:
    """``share`` of each peak is persistent, the rest ephemeral.  Raises KeyError or ValueError for other files."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_job(number, row, share) for number, row in enumerate(csv.DictReader(file))]


def _job(number: int, row: dict[str, str], share: float) -> TraceJob:
    peak = round(float(row["mem_mib"]) * MIB)
    persistent = round(peak * share)
    return TraceJob(
        id=f"{number}-{row['task']}",
        submit_us=round(float(row["submit_s"]) * 1_000_000),
        duration_us=round(float(row["solo_minutes"]) * MINUTE_US),
        gpus=int(row["gpus"]),
        persistent=persistent,
        ephemeral=peak - persistent,
        model=row["task"],
    )
