"""Problems that the command line finds, and exit codes.

Exit codes are stable: scripts rely on them, and the table in the guide is this one.
"""

from __future__ import annotations

from enum import IntEnum

from carpool.protocol import client
from carpool.protocol.api import ErrorInfo


class Exit(IntEnum):
    """The exit code of a command, for scripts."""

    OK = 0
    FAILED = 1  # something else went wrong, or a check of `doctor` found a problem
    USAGE = 2
    NO_DAEMON = 3  # no daemon can be reached, or the daemon could not start
    NOT_FOUND = 4  # no such job, model, device, command, file or directory
    REFUSED = 5  # not permitted, or not possible
    TIMEOUT = 6
    VERSION = 7  # the daemon is of another version
    INTERRUPTED = 130
    CLOSED_PIPE = 141


MEANINGS: dict[Exit, str] = {
    Exit.OK: "success",
    Exit.FAILED: "any other failure; for `doctor`: a check found a problem",
    Exit.USAGE: "the command line is wrong",
    Exit.NO_DAEMON: "no daemon can be reached, or it could not start",
    Exit.NOT_FOUND: "there is no such job, model, device, command, file or directory",
    Exit.REFUSED: "refused: not permitted, or not possible",
    Exit.TIMEOUT: "`wait --timeout` ran out",
    Exit.VERSION: "the daemon is of another version",
    Exit.INTERRUPTED: "Ctrl-C",
    Exit.CLOSED_PIPE: "the reader of the output has closed the pipe",
}

_BY_STATUS = {400: Exit.USAGE, 403: Exit.REFUSED, 404: Exit.NOT_FOUND, 409: Exit.REFUSED, 422: Exit.REFUSED}
_BY_CODE = {"unknown_dependency": Exit.NOT_FOUND, "stopping": Exit.NO_DAEMON}


def exit_code_of(error: client.ClientError) -> Exit:
    """The exit code for a problem between this command and the daemon."""
    match error:
        case client.ApiError():
            return _BY_CODE.get(error.info.code) or _BY_STATUS.get(error.status, Exit.FAILED)
        case client.NotYourSocket():
            return Exit.REFUSED
        case client.VersionMismatch():
            return Exit.VERSION
        case client.DaemonNotRunning() | client.DaemonNotAnswering() | client.UnusablePath():
            return Exit.NO_DAEMON
    return Exit.FAILED


class Problem(Exception):
    """Ends the command.  ``info``: what is wrong and what to do, for users; ``exit_code``: for scripts."""

    def __init__(self, exit_code: Exit, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.info = ErrorInfo(code=code, message=message, hint=hint)
