"""``carpool devices``: what there is to share, and who shares it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from carpool.cli import words
from carpool.cli.common import plural, print_json, print_lines, with_common_options
from carpool.cli.ctl import store_line
from carpool.cli.measured import measured_lines
from carpool.cli.style import stdout_style
from carpool.cli.table import table, terminal_width
from carpool.protocol.api import DeviceInfo, DeviceList, LaneInfo
from carpool.protocol.client import Client
from carpool.protocol.sizes import format_size, format_time_us

SHARING = {
    "concurrent": "lanes compute at the same time (concurrent)",
    "timeslice": "lanes compute in slices of time, which the driver gives them (timeslice)",
    "mps": "lanes of one user compute at the same time, in a server that they share (mps)",
}
HEADER = ("DEVICE", "SIZE", "GRANTED", "IN USE", "FREE", "STORED", "JOBS", "QUEUE", "QUANTUM", "OVER")


@click.command("devices", short_help="List the devices and who shares them.")
@with_common_options
def command(home: Path, as_json: bool) -> int:
    """List the devices, their memory, their lanes, what was measured of them, and the host store.

    GRANTED is promised to jobs and lanes; IN USE is what really exists; FREE is what can still be granted; STORED is
    what of its jobs lies in the host store.  QUANTUM and OVER(subscribe) are what `carpool ctl` sets.  Below the
    table: lanes, what has been moved, how lanes share the device, and what the device does, with the age of that
    measurement.
    """
    with Client(home) as client:
        listed = client.device_list()
    if as_json:
        print_json(listed)
    else:
        print_lines(table(HEADER, [_row(device) for device in listed.devices], stdout_style(), terminal_width()))
        print_lines(_below(listed))
    return 0


def _row(device: DeviceInfo) -> tuple[str, ...]:
    sizes = (device.capacity_bytes, device.granted_bytes, device.used_bytes, device.free_bytes, device.stored_bytes)
    counts = (str(len(device.jobs)), str(len(device.queue)))
    return (device.id, *map(format_size, sizes), *counts, format_time_us(device.quantum_us), device.oversubscribe)


def _below(listed: DeviceList) -> Iterator[str]:
    for device in listed.devices:
        yield from (lane_line(device, lane) for lane in device.lanes)
        if moved := words.moved(device.moved):
            yield f"  {device.id} moved by its jobs: {moved}"
        yield sharing_line(device)
        yield from measured_lines(device)
    yield store_line(listed.store)


def lane_line(device: DeviceInfo, lane: LaneInfo) -> str:
    holder = f"job {lane.holder} computes" if lane.holder is not None else "nobody computes"
    waiting = f", waiting: {', '.join(map(str, lane.waiting))}" if lane.waiting else ""
    size, jobs = format_size(lane.size_bytes), plural(len(lane.jobs), "job")
    return f"  {device.id} lane {lane.id}: {size}, {jobs}, {holder}{waiting}"


def sharing_line(device: DeviceInfo) -> str:
    if device.alone is not None:
        return f"  {device.id} sharing: job {device.alone} has it to itself (`carpool show {device.alone}` says why)"
    return f"  {device.id} sharing: {SHARING.get(device.sharing, device.sharing)}"
