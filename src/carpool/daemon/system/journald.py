"""Log records as entries of systemd's journal, with fields: https://systemd.io/JOURNAL_NATIVE_PROTOCOL."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from carpool.daemon.system.log_format import OneLineFormatter

SOCKET = Path("/run/systemd/journal/socket")
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
DEBUG = 7
#: An entry is one datagram, for which the kernel allows 200 KiB: longer messages and tracebacks are cut.
LONGEST_BYTES = 32_768


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
