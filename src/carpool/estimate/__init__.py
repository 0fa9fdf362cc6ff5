"""How much memory will a job need?  Answers before it has run, each with a range and how it is known.

Everything here runs in a process of its own (``python -m carpool.estimate``), in the interpreter of the job: the daemon
and the command line never load PyTorch.  Nothing outside the standard library is imported before it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from carpool.estimate.base import Estimator

#: Name of an estimator: its module and class there.  Imported when it is asked for.
ESTIMATORS: Mapping[str, tuple[str, str]] = {
    "horus": ("carpool.estimate.horus", "Horus"),
    "faketensor": ("carpool.estimate.faketensor", "FakeTensor"),
    "learned": ("carpool.estimate.learned", "Learned"),
    "history": ("carpool.estimate.history", "HistoryEstimator"),
    "auto": ("carpool.estimate.auto", "Auto"),
}


def make(name: str) -> Estimator:
    """The estimator of that name.  Raises KeyError for an unknown one, ModuleNotFoundError for one not installed."""
    module, cls = ESTIMATORS[name]
    estimator: Estimator = getattr(importlib.import_module(module), cls)()
    return estimator
