"""``carpool log-level``: how much the daemon writes into its log."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.options_common import answer, with_common_options
from carpool.protocol.api import LogLevelRequest
from carpool.protocol.client import DaemonClient
from carpool.protocol.display import escaped


@click.command("log-level", short_help="Show or change how much the daemon logs.")
@click.argument("level", required=False)
@click.option("--logger", metavar="NAME", default="", help="Only of this logger, as in carpool.daemon.api.")
@with_common_options
def command(home: Path, as_json: bool, level: str | None, logger: str) -> int:
    """Show the level of the daemon's log, or change it: debug, info, warning or error; with --logger also inherit.

    For administrators of the daemon.  A level holds until the daemon ends, and the next daemon begins with info.  The
    log says who has changed it.  At debug the log has a line for each request, with the id of the request.
    """
    if level is None and logger:
        raise click.UsageError("--logger needs a level: carpool log-level LEVEL --logger NAME")
    with DaemonClient(home) as client:
        info = client.log_level() if level is None else client.set_log_level(LogLevelRequest(level, logger))
    loggers = (f"{escaped(name)}: {own}" for name, own in info.loggers.items())
    return answer(as_json, info, lambda: [info.level, *loggers])
