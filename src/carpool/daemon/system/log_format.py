"""The form of the daemon's log: no text of a user can look like a line of the daemon, or control a terminal."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from carpool.protocol.escaping import escaped

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler

_Exception = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LogHandler(_StreamHandler):
    """Drops records that cannot be written: on a full disk a traceback would be no better."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in the standard library
        """Do nothing."""


class JsonFormatter(logging.Formatter):
    """One JSON object on each line: `time`, `level`, `logger`, `message`, and some optional fields.

    These are `job`, `request`, `uid` and `traceback`.
    """

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        more = {name: getattr(record, name, None) for name in ("job", "request", "uid")}
        found |= {name: value for name, value in more.items() if value not in (None, "")}
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)


class OneLineFormatter(logging.Formatter):
    """One line for each message; the lines of a traceback are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in the standard library
        return super().formatMessage(logging.makeLogRecord(vars(record) | {"message": escaped(record.message)}))

    def formatException(self, ei: _Exception) -> str:  # noqa: N802 - its name in the standard library
        return "\n".join(f"  {escaped(line)}" for line in super().formatException(ei).split("\n"))
