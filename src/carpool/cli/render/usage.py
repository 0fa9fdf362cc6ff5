"""Use of devices by users and day: rows of tables, and the sums."""

from __future__ import annotations

from carpool.cli.render.columns import TableColumn
from carpool.protocol.api import DeviceDay, UsageHistory, UserDay
from carpool.protocol.units import format_duration

USERS = (
    *(TableColumn("DAY"), TableColumn("USER"), TableColumn("DEVICE-H", right=True), TableColumn("JOBS", right=True)),
    *(TableColumn("WAITED", right=True), TableColumn("ENDED", prose=True)),
)
DEVICES = (TableColumn("DAY"), TableColumn("DEVICE"), TableColumn("BUSY", right=True))
US_PER_HOUR = 3_600_000_000


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
