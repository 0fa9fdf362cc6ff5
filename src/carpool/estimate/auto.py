"""The best estimate available: earlier runs, or a rehearsal corrected by trained trees, or a sum over layers.

The estimator of earlier runs of the same command is here, too (``history``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import carpool.estimate as estimates
from carpool.core.stats import quantile
from carpool.estimate.base import CannotEstimate, Estimator, Prediction, Subject
from carpool.estimate.learned import text_of
from carpool.estimate.learned.trees import DamagedWeights, number

CALIBRATION = "horus.json"


@dataclass(frozen=True, slots=True)
class Correction:
    """Factors for the sum of Horus on a GPU."""

    low: float
    middle: float
    high: float


class Auto:
    """The estimator ``auto``; ``how`` of its prediction begins with the estimator that was used."""

    name = "auto"

    def __init__(self, make: Callable[[str], Estimator] | None = None) -> None:
        self._make = make or estimates.make

    def estimate(self, subject: Subject) -> Prediction:
        """Return the best prediction there is.  Raises CannotEstimate, with all reasons."""
        if subject.history:
            return _as_auto(self._make("history").estimate(subject))
        reasons: list[str] = []
        for attempt in (self._rehearsed, self._summed):
            try:
                return attempt(subject)
            except CannotEstimate as error:
                reasons.append(error.text)
                hint = error.hint
        raise CannotEstimate("; ".join(reasons), hint)

    def _rehearsed(self, subject: Subject) -> Prediction:
        """Estimate by a rehearsal: on the host as it is, on a GPU corrected by trees that were trained on GPU runs."""
        if subject.device != "cuda":
            return _as_auto(self._make("faketensor").estimate(subject))
        if subject.features is None or not subject.features.peak_backward_bytes:
            rehearsal = self._make("faketensor")
            rehearsal.estimate(subject)
            subject = replace(subject, features=getattr(rehearsal, "features", None))
        return _as_auto(self._make("learned").estimate(subject))

    def _summed(self, subject: Subject) -> Prediction:
        plain = self._make("horus").estimate(subject)
        return _as_auto(plain if subject.device != "cuda" else _corrected(plain))


def _as_auto(prediction: Prediction) -> Prediction:
    return replace(prediction, source="auto", how=f"{prediction.source}: {prediction.how}")


def _corrected(plain: Prediction) -> Prediction:
    correction = shipped()
    low, middle, high = (round(plain.total * factor) for factor in (correction.low, correction.middle, correction.high))
    persistent = min(plain.persistent, middle)
    how = f"{plain.how}; corrected by its error on an A100"
    return replace(plain, persistent=persistent, ephemeral=middle - persistent, low=low, high=high, how=how)


@cache
def shipped() -> Correction:
    """Return the correction that is shipped.  Raises CannotEstimate."""
    try:
        return parse(text_of(CALIBRATION))
    except DamagedWeights as error:
        raise CannotEstimate(f"the calibration of Horus cannot be read: {error}", "install carpool again") from None


def parse(text: str) -> Correction:
    """Parse the file of a correction.  Raises DamagedWeights."""
    try:
        content = json.loads(text)
        found = Correction(*(number(content[end]) for end in ("low", "middle", "high")))
    except (ValueError, KeyError, TypeError, DamagedWeights) as error:
        raise DamagedWeights(f"{CALIBRATION} is damaged: {type(error).__name__}: {error}") from None
    if not 0 < found.low <= found.middle <= found.high:
        raise DamagedWeights(f"{CALIBRATION} is damaged: its factors do not increase")
    return found


SHARE_PPM = 950_000  # share of the runs for which the estimate would have been enough


class HistoryEstimator:
    """P and E each at the 95th percentile (nearest rank) of the known runs; the range is that of their totals."""

    name = "history"

    def __init__(self, share_ppm: int = SHARE_PPM) -> None:
        self._share_ppm = share_ppm

    def estimate(self, subject: Subject) -> Prediction:
        """Return the prediction from earlier runs.  Raises CannotEstimate if there are none."""
        runs = subject.history
        if not runs:
            raise CannotEstimate(
                "no earlier run of this command is known", "the command must have succeeded once, in the same directory"
            )
        totals = [run.persistent + run.ephemeral for run in runs]
        persistent = quantile([run.persistent for run in runs], self._share_ppm)
        ephemeral = quantile([run.ephemeral for run in runs], self._share_ppm)
        how = f"measured in {len(runs)} earlier run{'s' if len(runs) > 1 else ''} of the same command"
        return Prediction(persistent, ephemeral, min(totals), max(*totals, persistent + ephemeral), "history", how)
