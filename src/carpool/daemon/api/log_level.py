"""Log levels of the daemon, changed while the daemon runs."""

from __future__ import annotations

import logging

from aiohttp import web

from carpool.core.spelling import did_you_mean
from carpool.daemon.api.context import CONTEXT, caller, require_admin
from carpool.daemon.api.middleware import json_response, read_body
from carpool.daemon.system.errors import RequestError
from carpool.protocol.api import LogLevelInfo, LogLevelRequest

log = logging.getLogger(__name__)
INHERIT = "inherit"
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    INHERIT: logging.NOTSET,
}


async def get_log_level(request: web.Request) -> web.Response:
    """Return the level of all loggers, and those of loggers that have their own."""
    require_admin(request.app[CONTEXT], request, "see levels of the log")
    return json_response(_levels())


async def put_log_level(request: web.Request) -> web.Response:
    """Set a log level at once, until the daemon ends.  The log says who has changed the level."""
    require_admin(request.app[CONTEXT], request, "change levels of the log")
    wanted = await read_body(request, LogLevelRequest)
    logger = _logger(wanted.logger)
    level = _level(wanted)
    # Logged at a level that is written before the change.
    audible = max(logging.WARNING, log.getEffectiveLevel())
    log.log(audible, "uid %d sets the log level of %s to %s", caller(request).uid, logger.name, wanted.level)
    logger.setLevel(level)
    return json_response(_levels())


def _logger(name: str) -> logging.Logger:
    """Return the logger with this name; empty: the root logger.  Raises RequestError 400 for an unknown logger."""
    known = logging.root.manager.loggerDict
    if name and name not in known:
        hint = f"{did_you_mean(name, known)}loggers are named as modules, as in carpool.daemon.api; empty: all"
        raise RequestError(400, "unknown_logger", f"there is no logger {name!r}", hint)
    return logging.getLogger(name)


def _level(wanted: LogLevelRequest) -> int:
    """Return the number of the level that is asked for.  Raises RequestError 400."""
    if wanted.level not in LEVELS:
        raise RequestError(400, "unknown_level", f"there is no level {wanted.level!r}", f"known: {', '.join(LEVELS)}")
    if wanted.level == INHERIT and not wanted.logger:
        text = "all loggers together have no other to inherit from"
        raise RequestError(400, "bad_level", text, "name a logger, or choose debug, info, warning or error")
    return LEVELS[wanted.level]


def _levels() -> LogLevelInfo:
    known = {name: each for name, each in logging.root.manager.loggerDict.items() if isinstance(each, logging.Logger)}
    own = {name: _word(each.level) for name, each in sorted(known.items()) if each.level != logging.NOTSET}
    return LogLevelInfo(_word(logging.root.level), own)


def _word(level: int) -> str:
    """Return the word for a level, or its number if there is no word, as for levels that a library has set."""
    return next((word for word, number in LEVELS.items() if number == level), str(level))
