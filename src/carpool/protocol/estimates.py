"""Messages between `carpool estimate` and the process that estimates (``python -m carpool.estimate``)."""

from __future__ import annotations

import msgspec

from carpool.protocol.api import ErrorInfo, RunInfo

#: Estimators in the order in which users see them.
NAMES = ("horus", "faketensor", "learned", "history", "auto")
#: Estimators that `carpool submit --estimate` offers; the daemon already knows earlier runs.
AT_SUBMISSION = ("horus", "faketensor", "learned", "auto")


class Subject(msgspec.Struct, frozen=True):
    """The subject of an estimate: a command, or a model from a factory (see `carpool.estimate.base.Subject`)."""

    command: list[str] = []
    directory: str = ""
    model: str = ""
    batch_size: int | None = None
    optimizer: str = ""
    input_shapes: list[list[int]] = []
    loss: str = ""
    history: list[RunInfo] = []
    device: str = "host"  # or "cuda"


class Question(msgspec.Struct, frozen=True):
    """A request to the estimators, which together take ``limit_s`` seconds at most."""

    subject: Subject
    estimators: list[str]
    limit_s: float


class Prediction(msgspec.Struct, frozen=True):
    """Persistent and ephemeral bytes, and the range of their sum."""

    persistent: int
    ephemeral: int
    low: int
    high: int
    source: str
    how: str

    @property
    def total(self) -> int:
        """Persistent and ephemeral bytes together."""
        return self.persistent + self.ephemeral


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One per estimator: a prediction, or why there is none."""

    estimator: str
    prediction: Prediction | None = None
    error: ErrorInfo | None = None


class Answers(msgspec.Struct, frozen=True):
    """The output of ``carpool estimate --json``."""

    answers: list[Answer]
