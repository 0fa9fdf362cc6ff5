"""Errors that reach people: each has a stable code, what is wrong, and what to do about it."""

from __future__ import annotations

from carpool.protocol.api import ErrorInfo


class CarpoolError(Exception):
    """Base: carries an `ErrorInfo`."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.info = ErrorInfo(code=code, message=message, hint=hint)


class StartupError(CarpoolError):
    """The daemon cannot start."""


class RequestError(CarpoolError):
    """A request is refused with an HTTP status."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(code, message, hint)
        self.status = status


class JournalFull(CarpoolError):
    """The disk is full (or over quota, or read-only): nothing was recorded."""
