"""``carpool usage``: what users have used, and how busy devices were, by day."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.options_common import answer, with_common_options
from carpool.cli.base.time_arguments import MOMENT
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.history import US_PER_HOUR
from carpool.cli.render.output import Output, stdout_output
from carpool.protocol.api import DeviceDay, UsageHistory, UserDay
from carpool.protocol.client import DaemonClient
from carpool.protocol.units import format_duration

USERS = (
    TableColumn("DAY"),
    TableColumn("USER"),
    TableColumn("DEVICE-H", right=True),
    TableColumn("JOBS", right=True),
    TableColumn("WAITED", right=True),
    TableColumn("ENDED", prose=True),
)
DEVICES = (TableColumn("DAY"), TableColumn("DEVICE"), TableColumn("BUSY", right=True))


@click.command("usage", short_help="Show use of devices by user and day.")
@click.option(
    "--since", "since_us", type=MOMENT, help="From this day on, as in 2026-01-31, or 30d.  [default: 14 days]"
)
@click.option("--until", "until_us", type=MOMENT, help="Up to this day.")
@with_common_options
def command(home: Path, as_json: bool, since_us: int | None, until_us: int | None) -> int:
    """Show what users have used, and how busy devices were, by day; also of jobs that have been removed.

    DEVICE-H: hours of device time as in `carpool history`, jobs that still run included; spread evenly over the time
    for which each attempt ran.  JOBS: those that ended on the day.  WAITED: how long each of them was in no attempt, on
    average.  BUSY: how much of the time the device computed for jobs.  Whole days of the daemon's clock.
    """
    with DaemonClient(home) as client:
        found = client.usage(since_us, until_us)
    return answer(as_json, found, lambda: _lines(found, stdout_output()))


def _lines(found: UsageHistory, output: Output) -> list[str]:
    used = output.table(USERS, [*map(user_row, found.days)]) if found.days else ["no device time has been used"]
    busy = [device_row(day) for day in found.devices if day.busy_ppm is not None]
    return [*used, *(["", *output.table(DEVICES, busy)] if busy else []), sum_of_usage(found)]


def user_row(day: UserDay) -> tuple[str, ...]:
    """Return the cells for `USERS`."""
    ended = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(day.ended.items()))
    waited = format_duration(day.waited_us // day.jobs) if day.jobs else "-"
    return (day.day, day.user, f"{day.device_us / US_PER_HOUR:.3f}", str(day.jobs), waited, ended or "-")


def device_row(day: DeviceDay) -> tuple[str, ...]:
    """Return the cells for `DEVICES` of a day with measurements."""
    return (day.day, day.device, "-" if day.busy_ppm is None else f"{day.busy_ppm / 10_000:.0f} %")


def sum_of_usage(usage: UsageHistory) -> str:
    """Return one line that sums up all users and days."""
    jobs, hours = sum(day.jobs for day in usage.days), sum(day.device_us for day in usage.days) / US_PER_HOUR
    waited = format_duration(sum(day.waited_us for day in usage.days) // max(1, jobs))
    return f"{jobs} job{'' if jobs == 1 else 's'}: {hours:.3f} device-hours, waited {waited} on average"
