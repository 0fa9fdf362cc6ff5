"""The daemon's log: where it goes, the request of each line, and its form: no user's text looks like a line."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from carpool.daemon.system.log_limit import LinesPerUser, is_no_bad_http
from carpool.protocol.display import escaped
from carpool.protocol.paths import LOG_FLAGS, open_regular

#: The id of the request being handled; tasks and threads that the handler starts inherit the id.  Empty: none.
REQUEST: ContextVar[str] = ContextVar("request", default="")
_JOB = re.compile(r"\bjob %[ds]")
_PLACE = re.compile(r"%[^%a-zA-Z]*[a-zA-Z]")
_Exception = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
SOCKET = Path("/run/systemd/journal/socket")
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
DEBUG = 7
#: An entry is one datagram, for which the kernel allows 200 KiB: longer messages and tracebacks are cut.
LONGEST_BYTES = 32_768
LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s%(of_request)s"


class Correlated(logging.Filter):
    """Lets all records through, with ``request`` ("": none), its printed form ``of_request``, and ``job``."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; always return True."""
        request = REQUEST.get()
        of_request = f" (request {request})" if request else ""
        vars(record).update(request=request, of_request=of_request, job=job_of(record))
        return True


def job_of(record: logging.LogRecord) -> int | None:
    """Return the number behind ``job %d`` in a message of the code; text from users is never searched."""
    found = _JOB.search(record.msg) if isinstance(record.msg, str) else None
    if found is None or not isinstance(record.args, tuple):
        return None
    place = len(_PLACE.findall(record.msg[: found.start()].replace("%%", "")))
    number = record.args[place] if place < len(record.args) else None
    return number if isinstance(number, int) else None


if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler


class LogHandler(_StreamHandler):
    """Drops records that cannot be written: on a full disk a traceback would be no better."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in the standard library
        """Do nothing."""


class JsonFormatter(logging.Formatter):
    """One JSON object on each line: `time`, `level`, `logger`, `message`, and some optional fields.

    These are `job`, `request`, `uid` and `traceback`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON."""
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
        """Return the line of a record, with its message on one line."""
        return super().formatMessage(logging.makeLogRecord(vars(record) | {"message": escaped(record.message)}))

    def formatException(self, ei: _Exception) -> str:  # noqa: N802 - its name in the standard library
        """Return a traceback, each of its lines indented."""
        return "\n".join(f"  {escaped(line)}" for line in super().formatException(ei).split("\n"))


def goes_to_journal(fd: int, environment: Mapping[str, str]) -> bool:
    """Return whether systemd has connected this descriptor to its journal, as JOURNAL_STREAM says (device:inode)."""
    status = os.fstat(fd)
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class JournalHandler(logging.Handler):
    """Sends entries to ``path``.  If that is not possible the entry is lost, like any line on a full disk."""

    def __init__(self, path: Path = SOCKET) -> None:
        super().__init__()
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.setFormatter(OneLineFormatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Send an entry without waiting: the daemon's loop must not stand still because of the journal."""
        with suppress(OSError):
            self._socket.sendto(entry(dict(self._fields(record))), self._path)

    def close(self) -> None:
        """Close the handler and its socket."""
        self._socket.close()
        super().close()

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        yield "MESSAGE", self.format(record)
        yield "PRIORITY", str(next((number for level, number in PRIORITIES if record.levelno >= level), DEBUG))
        yield "SYSLOG_IDENTIFIER", "carpool"
        yield from (("CODE_FILE", record.pathname), ("CODE_LINE", str(record.lineno)), ("CODE_FUNC", record.funcName))
        yield "CARPOOL_LOGGER", record.name
        for name in ("job", "request", "uid"):
            value = getattr(record, name, None)
            if value not in (None, ""):
                yield f"CARPOOL_{name.upper()}", str(value)


def entry(fields: Mapping[str, str]) -> bytes:
    """Return the datagram.  A value of one line is written as NAME=value, others with their length before them."""
    return b"".join(_field(name.encode(), _bytes(value)) for name, value in fields.items())


def _field(name: bytes, value: bytes) -> bytes:
    if b"\n" in value:
        return name + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
    return name + b"=" + value + b"\n"


def _bytes(value: str) -> bytes:
    """Encode a value; a long one is cut, but not within a character."""
    data = value.encode(errors="backslashreplace")
    return data if len(data) <= LONGEST_BYTES else data[:LONGEST_BYTES].decode(errors="ignore").encode() + b" [cut]"


def configure_log(path: Path | None, form: str, lines_per_minute: int) -> None:
    """Set up the log.  ``path`` None: standard error, or systemd's journal if connected; ``form``: text or json."""
    handler = log_handler(path, form)
    handler.addFilter(LinesPerUser(lines_per_minute))
    handler.addFilter(Correlated())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(is_no_bad_http)


def log_handler(path: Path | None, form: str, journal: Path = SOCKET) -> logging.Handler:
    """Return the log handler.  JSON is written as lines even under systemd, because its readers expect lines."""
    if path is None and form == "text" and journal.exists() and goes_to_journal(2, os.environ):
        return JournalHandler(journal)
    target = None if path is None else open_regular(path, LOG_FLAGS, device=True)
    stream = sys.stderr if target is None else open(target, "a", encoding="utf-8")  # noqa: SIM115 - for the whole life
    handler = LogHandler(stream)
    lines = OneLineFormatter(LINE, defaults={"of_request": ""})
    handler.setFormatter(JsonFormatter() if form == "json" else lines)
    return handler
