"""``carpool devices``: what there is to share, and who shares it."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.common import plural, print_json, print_lines, with_common_options
from carpool.cli.style import stdout_style
from carpool.cli.table import table, terminal_width
from carpool.protocol.api import DeviceInfo, DeviceList, LaneInfo
from carpool.protocol.client import Client
from carpool.protocol.sizes import format_size

HEADER = ("DEVICE", "SIZE", "GRANTED", "IN USE", "FREE", "JOBS", "QUEUE")


@click.command("devices")
@with_common_options
def command(home: Path, as_json: bool) -> int:
    """List the devices, their memory and their lanes.

    GRANTED is promised to jobs and lanes; IN USE is what really exists; FREE is what can still be granted.
    """
    with Client(home) as client:
        devices = client.devices()
    if as_json:
        print_json(DeviceList(devices))
        return 0
    print_lines(table(HEADER, [_row(device) for device in devices], stdout_style(), terminal_width()))
    print_lines(lane_line(device, lane) for device in devices for lane in device.lanes)
    return 0


def _row(device: DeviceInfo) -> tuple[str, ...]:
    sizes = (device.capacity_bytes, device.granted_bytes, device.used_bytes, device.free_bytes)
    return (device.id, *map(format_size, sizes), str(len(device.jobs)), str(len(device.queue)))


def lane_line(device: DeviceInfo, lane: LaneInfo) -> str:
    holder = f"job {lane.holder} computes" if lane.holder is not None else "nobody computes"
    waiting = f", waiting: {', '.join(map(str, lane.waiting))}" if lane.waiting else ""
    size, jobs = format_size(lane.size_bytes), plural(len(lane.jobs), "job")
    return f"  {device.id} lane {lane.id}: {size}, {jobs}, {holder}{waiting}"
