"""Estimates of a job's memory before the job runs, each with a range and its source.

Everything here runs in a process of its own (``python -m carpool.estimate``), in the interpreter of the job: the daemon
and the command line never load PyTorch.  Nothing outside the standard library is imported before it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from carpool.estimate.base import Estimator

#: By name of an estimator: its module, which is imported when the estimator is asked for, and its class.
ESTIMATORS: Mapping[str, tuple[str, str]] = {
    "horus": ("carpool.estimate.horus", "Horus"),
    "faketensor": ("carpool.estimate.faketensor", "FakeTensor"),
    "learned": ("carpool.estimate.learned", "Learned"),
    "history": ("carpool.estimate.auto", "HistoryEstimator"),
    "auto": ("carpool.estimate.auto", "Auto"),
}


def make(name: str) -> Estimator:
    """Make an estimator by name.  Raises KeyError for an unknown one, ModuleNotFoundError for one not installed."""
    module, cls = ESTIMATORS[name]
    estimator: Estimator = getattr(importlib.import_module(module), cls)()
    return estimator
