"""The traces of CARMA's evaluation as jobs: ``submit_s, task, gpus, mem_mib, solo_minutes``; what is said of tasks."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping
from pathlib import Path

from carpool.core.model import MIB
from carpool.sim.generators.parameters import training
from carpool.sim.model.trace_job import TraceJob

MINUTE_US = 60_000_000
#: Columns of the catalogue by the name that an estimator has here, and the figure that stands for "no estimate".
ESTIMATORS = {"horus": "horus_mib", "faketensor": "faketensor_mib", "gpumemnet": "gpumemnet_bin_mib"}
NO_ESTIMATE_MIB = 40000.0
#: The classes of CARMA's list of tasks, and the share of a device that a task of each is **assumed** to use alone.  The
#: shares are evenly spaced round figures that were chosen before anything was simulated; nothing was measured.
LIGHT, MEDIUM, HEAVY = 0.3, 0.6, 0.9
_LIGHT_PARTS = ("cifar100", "mnist", "dlrm")
_HEAVY_PARTS = ("BERT", "gpt2", "xlnet", "maskrcnn")

Estimates = Mapping[str, tuple[tuple[str, int], ...]]  # by task


def persistent_share() -> float:
    """CARMA measured peaks only.  Of the peak of Salus's 45 training workloads the median keeps this share."""
    return statistics.median(each.persistent / (each.persistent + each.ephemeral) for each in training())


def assumed_utilization(task: str) -> float:
    """Small images and the recommender are light; transformers and detection are heavy; all the rest is between."""
    if any(part in task for part in _LIGHT_PARTS):
        return LIGHT
    return HEAVY if any(part in task for part in _HEAVY_PARTS) else MEDIUM


def read_estimates(path: Path) -> Estimates:
    """What three estimators say of each task's peak, in bytes; a task of which one says nothing has no entry of it."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["task"]: tuple(_estimates(row)) for row in csv.DictReader(file)}


def _estimates(row: dict[str, str]) -> list[tuple[str, int]]:
    found = [(name, float(row[column])) for name, column in sorted(ESTIMATORS.items()) if row[column]]
    return [(name, round(mib * MIB)) for name, mib in found if mib != NO_ESTIMATE_MIB]


def read_carma(path: Path, share: float, estimates: Estimates | None = None) -> list[TraceJob]:
    """``share`` of each peak is persistent, the rest ephemeral.  Raises KeyError or ValueError for other files."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_job(number, row, share, estimates or {}) for number, row in enumerate(csv.DictReader(file))]


def _job(number: int, row: dict[str, str], share: float, estimates: Estimates) -> TraceJob:
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
        estimates=estimates.get(row["task"], ()),
    )
