"""The measured runs, and what timm's models consist of.

``estimators/timm_half.csv`` under ``--data`` is half of a public set (image models of timm x batch size on an A100
40 GB).  ``timm_models.csv`` beside this file was written by `describe_timm.py`.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from carpool.core.model import MIB
from carpool.estimate.base import Features

RUNS = "estimators/timm_half.csv"
CATALOGUE = "carma/workload_catalogue.csv"
NO_FIGURE = 40_000  # MiB: stands for an estimate that was not to be had
MODELS = Path(__file__).parent / "timm_models.csv"
ALIKE = 0.10  # two readings of one model that differ by less say the same
_TRAINING_SETS = re.compile(r"^(tf|tv|legacy|gluon|swsl|ssl|ig|test)_")


class NoData(Exception):
    """The text says what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    measured: float  # MiB, the most that the device showed
    features: Features

    @property
    def family(self) -> str:
        """``tf_efficientnet_b0`` -> ``efficientnet``.  For folds only; no estimate knows it."""
        return re.match(r"[a-z]*", _TRAINING_SETS.sub("", self.model)).group(0) or self.model  # type: ignore[union-attr]

    @property
    def live(self) -> float:
        """MiB of tensors that were alive at once, by fake tensors."""
        return (self.features.peak_backward_bytes or 0) / MIB


def read(directory: Path | None) -> list[Row]:
    """Runs that did not crash.  Raises NoData."""
    path = None if directory is None else directory / RUNS
    if path is None or not path.is_file():
        raise NoData(
            f"there is no {path or RUNS}: give --data DIR (or CARPOOL_ESTIMATES=DIR), a folder with {RUNS}: model, "
            "batch_size, measured_max_gpu_mem_MiB, faketensor_after_{forward,backward,final}_MiB, clean"
        )
    models = described()
    with path.open(encoding="utf-8", newline="") as file:
        return [_row(each, models) for each in csv.DictReader(file) if each["clean"] == "True"]


def described() -> dict[str, dict[str, str]]:
    with MODELS.open(encoding="utf-8", newline="") as file:
        return {each["model"]: each for each in csv.DictReader(file)}


def sound(rows: Sequence[Row]) -> list[Row]:
    """Without runs that cannot have trained: they read less than the tensors that training keeps alive at once.

    Such a run has ended before its first step, whatever its batch; so its readings at other batch sizes, where they
    are the same, are no use either.  The rule looks at measurements and fake tensors only, never at an estimate.
    """
    readings = defaultdict(list)
    for row in rows:
        if row.measured < row.live:
            readings[row.model].append(row.measured)
    return [row for row in rows if not any(abs(row.measured / each - 1) < ALIKE for each in readings[row.model])]


def _row(given: dict[str, str], models: dict[str, dict[str, str]]) -> Row:
    known, batch = models.get(given["model"]), int(given["batch_size"])
    forward, backward = (float(given[f"faketensor_after_{when}_MiB"]) for when in ("forward", "backward"))
    weights = int(known["parameter_bytes"]) if known else 0
    features = Features(
        batch_size=batch,
        parameter_bytes=weights,
        buffer_bytes=int(known["buffer_bytes"]) if known else 0,
        gradient_bytes=weights,
        optimizer_bytes=0,  # not told; the estimate adds what is beyond the measured runs' own
        activation_bytes=round(forward * MIB),
        input_bytes=int(known["example_bytes"]) * batch if known else 0,
        peak_forward_bytes=round(forward * MIB),
        peak_backward_bytes=round(backward * MIB),
        layers=_layers(known["layers"]) if known else {},
    )
    return Row(given["model"], float(given["measured_max_gpu_mem_MiB"]), features)


def _layers(text: str) -> dict[str, int]:
    return {name: int(count) for name, _, count in (each.partition("=") for each in text.split(";") if each)}


def read_catalogue(directory: Path | None) -> list[tuple[float, float]]:
    """(measured, Horus) in MiB of each task that Horus had a figure for, repetitions once.  Raises NoData."""
    path = None if directory is None else directory / CATALOGUE
    if path is None or not path.is_file():
        raise NoData(f"there is no {path or CATALOGUE}: give --data DIR, a folder with {CATALOGUE}")
    with path.open(encoding="utf-8", newline="") as file:
        found = {(each["model_summary"], each["batch_size"]): each for each in csv.DictReader(file)}
    pairs = [(each["oracle_mem_mib"], each["horus_mib"]) for each in found.values()]
    return [(float(measured), float(horus)) for measured, horus in pairs if measured and float(horus) < NO_FIGURE]
