"""What every estimator is given and what it answers.  Pure values: this module imports neither torch nor numpy."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from carpool.protocol.lacking import hint_for


@dataclass(frozen=True, slots=True)
class Features:
    """What a pass over fake tensors, or the analytic walk, knows of a training job."""

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
    how: str  # one sentence for people: how it knows

    @property
    def total(self) -> int:
        return self.persistent + self.ephemeral


@dataclass(frozen=True, slots=True)
class Run:
    """What one earlier run of a command needed, as measured."""

    persistent: int  # bytes, peak
    ephemeral: int  # bytes, peak


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be estimated: a command, or a model from a factory; and what is known of it already."""

    command: tuple[str, ...] = ()  # argv as it would be submitted
    directory: str = ""  # where it would run; factories are looked for there, too
    model: str = ""  # "module:factory" or "file.py:factory"
    batch_size: int | None = None
    optimizer: str = ""  # lower-case name of a torch.optim class
    input_shapes: tuple[tuple[int, ...], ...] = ()  # of one example, without the batch dimension
    loss: str = ""
    features: Features | None = None
    history: tuple[Run, ...] = ()  # the newest last
    device: str = "host"  # or "cuda": whether a context and its libraries take memory beside the job's tensors


class CannotEstimate(Exception):
    """The text says, for people, why not; ``hint`` what to do about it."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text, self.hint = text, hint


def no_torch(error: ImportError) -> CannotEstimate:
    """PyTorch, or what it needs, is not there; or it is, and broken."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"{hint_for(error.name, sys.executable)}; or activate the environment of the job"
        return CannotEstimate(f"{sys.executable} lacks {error.name}", hint)
    return CannotEstimate(f"{sys.executable} cannot import PyTorch: {error}", "install PyTorch there anew")


class Estimator(Protocol):
    """One way to know a job's memory before it has run."""

    name: str

    def estimate(self, subject: Subject) -> Prediction:
        """Raises CannotEstimate."""
        ...
