"""The estimator ``history``: measured memory of earlier runs of the same command."""

from __future__ import annotations

from carpool.core.stats import quantile
from carpool.estimate.base import CannotEstimate, Prediction, Subject

SHARE_PPM = 950_000  # share of the runs for which the estimate would have been enough


class HistoryEstimator:
    """P and E each at the 95th percentile (nearest rank) of the known runs; the range is that of their totals."""

    name = "history"

    def __init__(self, share_ppm: int = SHARE_PPM) -> None:
        self._share_ppm = share_ppm

    def estimate(self, subject: Subject) -> Prediction:
        runs = subject.history
        if not runs:
            raise CannotEstimate(
                "no earlier run of this command is known", "it must have ended well once, in the same directory"
            )
        totals = [run.persistent + run.ephemeral for run in runs]
        persistent = quantile([run.persistent for run in runs], self._share_ppm)
        ephemeral = quantile([run.ephemeral for run in runs], self._share_ppm)
        how = f"measured in {len(runs)} earlier run{'s' if len(runs) > 1 else ''} of the same command"
        return Prediction(persistent, ephemeral, min(totals), max(*totals, persistent + ephemeral), "history", how)
