"""``carpool policy``: the scheduling and placement policies; ``carpool log-level``: how much the daemon logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.options_common import answer, completed, with_common_options
from carpool.cli.render.output import Output, stdout_output
from carpool.protocol.api import LogLevelRequest, PolicyInfo, PolicyRequest
from carpool.protocol.client import DaemonClient
from carpool.protocol.display import escaped
from carpool.protocol.setting_text import absolute_name

#: Policies and placements that are there to compare with, or to behave as a published system.
OF_PAPERS = frozenset({"fifo", "las", "pack", "sjf", "srsf", "tq", "best-fit", "first-fit", "lug", "round-robin"})


class PolicyName(click.ParamType[str]):
    """The name of a policy, which the daemon checks; the shell completes names that the daemon knows."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Complete the name of a policy that the daemon knows."""
        return completed(ctx, incomplete, lambda client: dict.fromkeys(client.policy().available, ""))


@click.command("policy", short_help="Show or change the policies.")
@click.argument("name", required=False, type=PolicyName())
@click.option(
    "--placement", metavar="NAME", help="Policy for which device a job is placed on, as in magm or ./mine.py:Class."
)
@with_common_options
def command(home: Path, as_json: bool, name: str | None, placement: str | None) -> int:
    """Show or change the policies of the running daemon.

    NAME says who computes next: a built-in policy, or one of yours as ./mine.py:Class.  Changes apply at once and
    persist across restarts of the daemon.  `carpool set` changes settings.
    """
    with DaemonClient(home) as client:
        if name or placement:
            wanted, where = (absolute_name(each) if each else None for each in (name, placement))
            info = client.set_policy(PolicyRequest(name=wanted, placement=where))
        else:
            info = client.policy()
    return answer(as_json, info, lambda: _lines(info))


def _lines(info: PolicyInfo) -> list[str]:
    output = stdout_output()
    lines = _chosen("policy", info.name, info.available, output)
    if info.fault:
        lines += output.wrapped([f"the policy failed: {escaped(info.fault)}"], "red")
    lines += _chosen("placement", info.placement, info.placements, output)
    if info.placement_fault:
        text = f"the placement failed, and magm decided instead: {escaped(info.placement_fault)}"
        lines += output.wrapped([text], "red")
    return lines


def _chosen(what: str, name: str, available: Sequence[str], output: Output) -> list[str]:
    """List the policy in force, beside it those for every day and those of users, and below those to compare with."""
    others = [other for other in available if other != name]
    usual = ", ".join(other for other in others if other not in OF_PAPERS)
    compared = ", ".join(other for other in others if other in OF_PAPERS)
    first, *rest = output.wrapped([f"{what} {name}" + (f" (or: {usual})" if usual else "")])
    below = output.wrapped([f"  published ones, to compare with: {compared}"] if compared else [], "dim")
    return [first.replace(f" {name}", f" {output.painted('bold', name)}", 1), *rest, *below]


@click.command("log-level", short_help="Show or change how much the daemon logs.")
@click.argument("level", required=False)
@click.option("--logger", metavar="NAME", default="", help="Only of this logger, as in carpool.daemon.api.")
@with_common_options
def log_level(home: Path, as_json: bool, level: str | None, logger: str) -> int:
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
