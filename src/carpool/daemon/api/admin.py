"""Version, policy, log levels, shutdown."""

from __future__ import annotations

import logging
import os

import carpool
from carpool.core.policies import available_policies
from carpool.core.policies.placement import available_placements
from carpool.core.spelling import did_you_mean
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.visibility import visible_fault
from carpool.daemon.config.limits import limits_table
from carpool.daemon.config.settings import changed_settings, check_store, settings_table
from carpool.daemon.system.errors import RequestError
from carpool.plugins import announced_placements, announced_policies
from carpool.protocol.api import (
    API_VERSION,
    LogLevelInfo,
    LogLevelRequest,
    PolicyInfo,
    PolicyRequest,
    ShutdownRequest,
    VersionInfo,
)

log = logging.getLogger(__name__)
INHERIT = "inherit"
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    INHERIT: logging.NOTSET,
}


async def version(call: ApiCall) -> object:
    """Return the daemon's version, process, user and home directory; answered while the daemon starts, too."""
    context = call.context
    who = os.getpid(), str(context.home.root), context.uid
    return VersionInfo(
        carpool.__version__, API_VERSION, *who, context.started_us, context.control_groups, context.options.threads
    )


async def get_policy(call: ApiCall) -> object:
    """Return the policies and settings in force, the available policies, and whether a user's policy has failed."""
    context = call.context
    settings, available = context.settings.current, [*available_policies(), *announced_policies()]
    placement = (settings.placement, [*available_placements(), *announced_placements()])
    faults = context.machine.policy_fault, context.machine.placement_fault
    fault, other = (visible_fault(call.sight, text) for text in faults)
    start = limits_table(context.limits) + context.options.table()
    return PolicyInfo(settings.policy, available, settings_table(settings), fault, *placement, other, start)


async def put_policy(call: ApiCall) -> object:
    """Change policies and settings; the change is durable, and in force at once."""
    context = call.context
    call.require_admin("change policies and settings")
    wanted = await call.body(PolicyRequest)
    try:
        current = context.settings.current
        settings = changed_settings(current, wanted.name, wanted.settings, wanted.placement)
        check_store(wanted.settings.get("host_store"), context.options.store_room)
    except ValueError as error:
        raise RequestError(400, "bad_policy", str(error)) from None
    await context.apply_settings(settings)
    return await get_policy(call)


async def shutdown(call: ApiCall) -> object:
    """Answer the request, then stop the daemon."""
    call.require_admin("stop the daemon")
    wanted = await call.body(ShutdownRequest) if call.request.can_read_body else ShutdownRequest()
    call.context.stop(wanted.stop_jobs)
    return {}


async def get_log_level(call: ApiCall) -> object:
    """Return the level of all loggers, and those of loggers that have their own."""
    call.require_admin("see levels of the log")
    return _levels()


async def put_log_level(call: ApiCall) -> object:
    """Set a log level at once, until the daemon ends.  The log says who has changed the level."""
    call.require_admin("change levels of the log")
    wanted = await call.body(LogLevelRequest)
    logger = _logger(wanted.logger)
    level = _level(wanted)
    # Logged at a level that is written before the change.
    audible = max(logging.WARNING, log.getEffectiveLevel())
    log.log(audible, "uid %d sets the log level of %s to %s", call.who.uid, logger.name, wanted.level)
    logger.setLevel(level)
    return _levels()


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
