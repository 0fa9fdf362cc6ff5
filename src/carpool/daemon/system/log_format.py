"""The form of the daemon's log: no text of a user can look like a line of the daemon's, or control a terminal."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from carpool.protocol.escaping import escaped

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler

_Exception = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LogHandler(_StreamHandler):
    """Leaves out what cannot be written: on a full disk a traceback would be no better."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in the standard library
        """Nothing."""


class OneLineFormatter(logging.Formatter):
    """One line for each message; the lines of a traceback are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in the standard library
        return super().formatMessage(logging.makeLogRecord(vars(record) | {"message": escaped(record.message)}))

    def formatException(self, ei: _Exception) -> str:  # noqa: N802 - its name in the standard library
        return "\n".join(f"  {escaped(line)}" for line in super().formatException(ei).split("\n"))
