"""``carpool usage``: what users have used, and how busy devices were, by day."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.moments import past_moment_us
from carpool.cli.base.options_common import Parsed, print_json, print_lines, with_common_options
from carpool.cli.render.output import stdout_output
from carpool.cli.render.usage import DEVICES, USERS, device_row, sum_of_usage, user_row
from carpool.protocol.client import DaemonClient

MOMENT = Parsed("time", past_moment_us)


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
    if as_json:
        print_json(found)
        return 0
    output = stdout_output()
    busy = [device_row(day) for day in found.devices if day.busy_ppm is not None]
    print_lines(
        output.table(USERS, [user_row(day) for day in found.days]) if found.days else ["no job has used anything"]
    )
    print_lines([*(["", *output.table(DEVICES, busy)] if busy else []), sum_of_usage(found)])
    return 0
