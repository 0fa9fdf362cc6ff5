"""The destination and the form of the daemon's log."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from carpool.daemon.system.correlation import Correlated
from carpool.daemon.system.journald import SOCKET, JournalHandler, goes_to_journal
from carpool.daemon.system.log_format import JsonFormatter, LogHandler, OneLineFormatter
from carpool.daemon.system.log_limit import LinesPerUser, is_no_bad_http
from carpool.protocol.regular_files import LOG_FLAGS, open_regular

LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s%(of_request)s"


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
