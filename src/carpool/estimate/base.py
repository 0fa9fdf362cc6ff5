"""Subjects and predictions of estimators.  Pure values: this module imports torch in `need_torch` only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from carpool.protocol.missing_package import hint_for


@dataclass(frozen=True, slots=True)
class Features:
    """Facts about a training job from a pass over fake tensors, or from the analytic walk."""

    batch_size: int
    parameter_bytes: int
    buffer_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int  # kept for the backward pass
    input_bytes: int
    peak_forward_bytes: int | None = None  # peak after the forward pass, by the tracker
    peak_backward_bytes: int | None = None
    layers: Mapping[str, int] = field(default_factory=dict)  # module type: count
    family: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """P persistent and E ephemeral bytes of a job without co-runners."""

    persistent: int
    ephemeral: int
    low: int  # range of the total, bytes
    high: int
    source: str  # "horus" | "faketensor" | "learned" | "history" | "auto"
    how: str  # one sentence for users: where the prediction comes from

    @property
    def total(self) -> int:
        """Persistent and ephemeral bytes together."""
        return self.persistent + self.ephemeral


@dataclass(frozen=True, slots=True)
class Run:
    """The measured memory of one earlier run of a command."""

    persistent: int  # bytes, peak
    ephemeral: int  # bytes, peak


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an estimate: a command, or a model from a factory; and known facts about it."""

    command: tuple[str, ...] = ()  # argv as it would be submitted
    directory: str = ""  # where the command would run; factories are looked for there, too
    model: str = ""  # "module:factory" or "file.py:factory"
    batch_size: int | None = None
    optimizer: str = ""  # lower-case name of a torch.optim class
    input_shapes: tuple[tuple[int, ...], ...] = ()  # of one example, without the batch dimension
    loss: str = ""
    features: Features | None = None
    history: tuple[Run, ...] = ()  # oldest first
    device: str = "host"  # or "cuda": whether a context and its libraries take memory beside the job's tensors


class CannotEstimate(Exception):
    """No estimate is possible.  The text says why, for users; ``hint``: what to do about it."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text, self.hint = text, hint


def need_torch() -> None:
    """Import PyTorch.  Raises CannotEstimate if PyTorch, or a package that it needs, is missing or broken."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name:
            hint = f"{hint_for(error.name, sys.executable)}; or activate the environment of the job"
            raise CannotEstimate(f"{sys.executable} lacks {error.name}", hint) from None
        text = f"{sys.executable} cannot import PyTorch: {error}"
        raise CannotEstimate(text, "install PyTorch there anew") from None


class Estimator(Protocol):
    """One way to estimate a job's memory before the job runs."""

    name: str

    def estimate(self, subject: Subject) -> Prediction:
        """Predict the memory of a subject.  Raises CannotEstimate."""
