"""The form of the daemon's log: no text of a user can look like a line of the daemon's, or control a terminal."""

from __future__ import annotations

import logging
from types import TracebackType

from carpool.protocol.escaping import escaped

_Exception = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class OneLineFormatter(logging.Formatter):
    """One line for each message; the lines of a traceback are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in the standard library
        return super().formatMessage(logging.makeLogRecord(vars(record) | {"message": escaped(record.message)}))

    def formatException(self, ei: _Exception) -> str:  # noqa: N802 - its name in the standard library
        return "\n".join(f"  {escaped(line)}" for line in super().formatException(ei).split("\n"))
