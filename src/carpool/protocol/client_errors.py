"""Errors between a client and the daemon: each says what is wrong and what to do about it."""

from __future__ import annotations

from pathlib import Path

from carpool.protocol.api import API_VERSION, ErrorInfo
from carpool.protocol.user_names import user_name


class ClientError(Exception):
    """Base.  ``info.code`` is stable, ``info.message`` and ``info.hint`` are for people."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.info = ErrorInfo(code=code, message=message, hint=hint)


class DaemonNotRunning(ClientError):
    """Nobody listens on the socket."""

    def __init__(self, socket: Path) -> None:
        super().__init__(
            "not_running",
            f"no daemon is running (no answer at {socket})",
            "it starts with the first `carpool submit`, or with `carpool up`",
        )


class DaemonNotAnswering(ClientError):
    """The daemon accepted the connection and then said nothing for too long, or hung up."""

    def __init__(self, socket: Path, what: str) -> None:
        super().__init__(
            "not_answering",
            f"the daemon at {socket} {what}",
            f"see {socket.parent / 'daemon.log'}; `carpool down` and `carpool up` restart it, jobs go on meanwhile",
        )


class NotYourSocket(ClientError):
    """The socket is another user's."""

    def __init__(self, socket: Path, owner: int | None) -> None:
        whose = "another user" if owner is None else f"user {user_name(owner)}"
        super().__init__(
            "not_your_socket",
            f"the daemon at {socket} belongs to {whose}",
            "set CARPOOL_HOME (or --home) to a directory of your own",
        )


class VersionMismatch(ClientError):
    """The daemon speaks another version of the protocol, or is no Carpool daemon."""

    def __init__(self, socket: Path, theirs: str | None) -> None:
        message = (
            f"what answers at {socket} is not a Carpool daemon"
            if theirs is None
            else f"the daemon at {socket} speaks protocol version {theirs}, this client version {API_VERSION}"
        )
        hint = (
            "set CARPOOL_HOME to another directory"
            if theirs is None
            else ("restart it with this version: `carpool down`, then `carpool up` (jobs go on meanwhile)")
        )
        super().__init__("version_mismatch", message, hint)


class UnusablePath(ClientError):
    """The socket's path cannot be used at all."""


class ApiError(ClientError):
    """The daemon refused the request.  ``status`` is the HTTP status."""

    def __init__(self, status: int, info: ErrorInfo) -> None:
        super().__init__(info.code, info.message, info.hint)
        self.status = status
