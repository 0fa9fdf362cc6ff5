"""Errors of requests: each has an HTTP status, and a stable kind by which it is counted."""

from __future__ import annotations

from typing import ClassVar

#: Longest text of an error for a client, in characters.
LONGEST = 2000


def text_of(error: BaseException) -> str:
    """Return the text of an error that comes from a user's code."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")[:LONGEST]


class StartError(Exception):
    """The endpoint cannot start.  The text says what to do."""


class ServeError(Exception):
    """Base class.  The text tells the client what is wrong, and where."""

    status: ClassVar[int]
    kind: ClassVar[str]

    def __init__(self, text: str, retry_after_s: int | None = None) -> None:
        """Make an error.  ``retry_after_s``: when another try is worthwhile, if that is known."""
        super().__init__(text)
        self.retry_after_s = retry_after_s


class WrongInput(ServeError):
    """The request is malformed, or is not what the model takes."""

    status, kind = 400, "wrong_input"


class WrongEncoding(ServeError):
    """The server does not support the compression of the body."""

    status, kind = 415, "wrong_encoding"


class BodyTooLarge(ServeError):
    """The body, or the decompressed body, is beyond the server's limit."""

    status, kind = 413, "body_too_large"


class BodyTooSlow(ServeError):
    """The client has stopped sending in the middle of the body."""

    status, kind = 408, "body_too_slow"


class WrongOrigin(ServeError):
    """There is no token, and the request was meant for another host, or is from a page of another site."""

    status, kind = 403, "wrong_origin"


class NotAuthorized(ServeError):
    """The token is missing or wrong."""

    status, kind = 401, "not_authorized"


class UnknownModel(ServeError):
    """There is no model of this name, or it has no such version."""

    status, kind = 404, "unknown_model"


class QueueFull(ServeError):
    """The model's queue is full."""

    status, kind = 429, "queue_full"


class ServerBusy(ServeError):
    """There is no room for the body at present."""

    status, kind = 503, "server_busy"


class DaemonAway(ServeError):
    """The daemon does not answer, and the request has waited for it as long as it could."""

    status, kind = 503, "daemon_away"


class ModelFailed(ServeError):
    """The model's own code raised an error."""

    status, kind = 500, "model_failed"


class CodeChanged(ModelFailed):
    """The model's code has changed since its preparation; no client sees this error."""

    kind = "code_changed"


class ModelUnavailable(ServeError):
    """The model exists, but cannot be asked: it is not ready yet, has been removed, or cannot be served as it is."""

    status, kind = 503, "model_unavailable"


class ComputationLeft(ModelUnavailable):
    """The computation was left before its end, because no client waits for it; no client sees this error."""

    kind = "left"


class WorkerLost(ServeError):
    """The worker that computed died, and so did the worker that tried again."""

    status, kind = 503, "worker_lost"


class EngineBusy(ServeError):
    """The engine has as many requests as it may have at once."""

    status, kind = 429, "engine_busy"


class EngineLost(ServeError):
    """The engine's process has ended, at its start or while it answered."""

    status, kind = 502, "engine_lost"


class EngineStarting(ServeError):
    """The engine was not ready within its time for starting."""

    status, kind = 503, "engine_starting"


class ShuttingDown(ServeError):
    """The server answers the requests that it has accepted, and accepts no more."""

    status, kind = 503, "shutting_down"


class DeadlineMissed(ServeError):
    """The answer would come, or came, after its deadline."""

    status, kind = 504, "deadline_missed"


class ModelTooLarge(ServeError):
    """The model does not fit onto any device, however long the request waits."""

    status, kind = 507, "model_too_large"
