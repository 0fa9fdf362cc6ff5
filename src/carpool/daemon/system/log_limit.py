"""A limit for log lines that a user can cause: a number per minute, and one line with the number left out."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from aiohttp.http_exceptions import HttpProcessingError

from carpool.daemon.system.peer import person_of

log = logging.getLogger(__name__)
WINDOW_S = 60.0


def caused_by(uid: int | None) -> dict[str, int | None]:
    """Return ``extra`` for a line that this user can cause at will; None: no particular user causes it."""
    return {"uid": uid}


def log_problems(uid: int, result: list[str] | Exception) -> None:
    """Log the problems that work for a user has returned, or the error that it has raised."""
    for problem in [str(result)] if isinstance(result, Exception) else result:
        log.warning("%s", problem, extra=caused_by(uid))


def is_no_bad_http(record: logging.LogRecord) -> bool:
    """Filter aiohttp's log: a client that does not speak HTTP gets an error, and could fill the log at will."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


@dataclass(slots=True)
class _Lines:
    """The lines that one user has caused in the present window."""

    written: int = 0
    left_out: int = 0

    def count(self, most: int) -> bool:
        """Count one more line; return whether it is written."""
        if self.written == most:
            self.left_out += 1
            return False
        self.written += 1
        return True


class LinesPerUser(logging.Filter):
    """Lets through ``most`` lines of each user in ``window_s``, and all lines that no particular user has caused.

    Lines with a uid (`caused_by`) are written in the event loop only.
    """

    def __init__(self, most: int, window_s: float = WINDOW_S) -> None:
        super().__init__()
        self._most = most
        self._window_s = window_s
        self._of: dict[int, _Lines] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written."""
        uid: int | None = getattr(record, "uid", None)
        return uid is None or self._counted(person_of(uid))

    def _counted(self, uid: int) -> bool:
        lines = self._of.get(uid)
        if lines is None:
            lines = self._of[uid] = _Lines()
            asyncio.get_running_loop().call_later(self._window_s, self._close_window, uid)
        return lines.count(self._most)

    def _close_window(self, uid: int) -> None:
        lines = self._of.pop(uid)
        if lines.left_out:
            text = "uid %d caused %d lines in %.0f s: %d of them were left out here"
            log.warning(text, uid, lines.written + lines.left_out, self._window_s, lines.left_out)
