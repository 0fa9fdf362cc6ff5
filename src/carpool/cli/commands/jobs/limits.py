"""``carpool limits``: the limits of a user, and how much is used of each."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.options_common import answer, with_common_options
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output, stdout_output
from carpool.protocol.api import LimitInfo, UserLimitsInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.setting_text import format_setting, shown_name
from carpool.protocol.units import format_duration, format_size

_COLUMNS = (
    TableColumn("LIMIT"),
    TableColumn("USED", right=True),
    TableColumn("AT MOST", right=True),
    TableColumn("OF", prose=True),
)
_SIZES = ("submissions_size", "memory")


@click.command("limits", short_help="Show your limits and what you use of them.")
@click.option("--user", metavar="USER", help="For administrators: of this user, by name or uid.")
@with_common_options
def command(home: Path, as_json: bool, user: str | None) -> int:
    """Show the limits that hold for you, and what counts against each of them now.

    Administrators change them: `carpool set user_running=4 user_devices=2`, for a single user as in
    `user_running.anna=8`, and of a group as in `group.vision=2`; all others are in limits.toml.  A job that waits for a
    limit says so in `carpool ls`.
    """
    with DaemonClient(home) as client:
        info = client.limits(user)
    return answer(as_json, info, lambda: _lines(info, stdout_output()))


def _lines(info: UserLimitsInfo, output: Output) -> list[str]:
    return [*output.table(_COLUMNS, [_row(limit) for limit in info.limits]), *output.wrapped([_use(info)])]


def _row(limit: LimitInfo) -> tuple[str, str, str, str]:
    used = "" if limit.used is None else _text(limit.name, limit.used)
    most = "any" if limit.most is None else _text(limit.name, limit.most)
    return (shown_name(limit.name), used, most, limit.text)


def _text(name: str, value: int) -> str:
    return format_size(value) if name in _SIZES else format_setting(name, value)


def _use(info: UserLimitsInfo) -> str:
    if not info.half_life_us:
        return "Device time that was used is not remembered (use_half_life)."
    used, half = format_duration(info.used_us), format_duration(info.half_life_us)
    return f"Device time of {info.user} that counts now: {used}; it counts half after {half} (use_half_life)."
