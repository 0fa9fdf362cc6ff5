"""``carpool devices``: devices, their memory, and the jobs that share them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from carpool.cli.base.options_common import TIME_US, answer, check_device, plural, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output, stdout_output
from carpool.cli.render.telemetry import measured_lines, past_lines, step_for
from carpool.protocol.api import DeviceInfo, DeviceList, LaneInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.display import escaped
from carpool.protocol.units import format_size, format_time_us

SHARING = {
    "concurrent": "lanes compute at the same time (concurrent)",
    "timeslice": "the driver gives lanes slices of time (timeslice)",
    "mps": "lanes of one user compute at the same time, through an MPS server (mps)",
}
COLUMNS = (
    TableColumn("DEVICE"),
    TableColumn("SIZE"),
    TableColumn("GRANTED"),
    TableColumn("IN USE", gives_way=1),
    TableColumn("FREE"),
    TableColumn("STORED", gives_way=2),
    TableColumn("JOBS"),
    TableColumn("QUEUE"),
    TableColumn("QUANTUM", gives_way=4),
    TableColumn("OVER", gives_way=3),
)


@click.command("devices", short_help="List devices, their memory, and the jobs that share them.")
@click.argument("name", required=False)
@click.option(
    "--history", "history_us", type=TIME_US, help="Show measurements of NAME over the last TIME, as in 10m, 1h or 7d."
)
@click.option("--step", "step_us", type=TIME_US, help="With --history: the time that each line covers.")
@with_common_options
def command(home: Path, as_json: bool, name: str | None, history_us: int | None, step_us: int | None) -> int:
    """List devices with their memory, lanes and measurements, and the host store.

    GRANTED: memory promised to jobs and lanes.  IN USE: the part of it that is allocated.  FREE: memory that can still
    be granted.  STORED: memory of the device's jobs in the host store.  QUANTUM and OVER(subscribe): see `carpool set`.
    Below the table: lanes, memory moved so far, how lanes share the device, and the last measurement with its age.

    With a NAME, that device only.  --history shows its measurements over time: single ones are kept for ten minutes,
    means of a minute for a week, means of an hour for 90 days.
    """
    if history_us is not None or step_us is not None:
        return _history(home, as_json, name, history_us, step_us)
    with DaemonClient(home) as client:
        listed = client.device_list()
    if name is not None:
        listed = DeviceList([_named(listed, name)], listed.store)
    return answer(as_json, listed, lambda: _lines(listed, stdout_output()))


def _lines(listed: DeviceList, output: Output) -> list[str]:
    return [*output.table(COLUMNS, [_row(device) for device in listed.devices]), *output.wrapped(_below(listed))]


def _named(listed: DeviceList, name: str) -> DeviceInfo:
    devices = {device.id: device for device in listed.devices}
    check_device(name, [*devices])
    return devices[name]


def _history(home: Path, as_json: bool, name: str | None, history_us: int | None, step_us: int | None) -> int:
    if name is None or history_us is None:
        raise click.UsageError("--history and --step need a device: carpool devices host0 --history 1h")
    if step_us is None and not as_json:
        step_us = step_for(history_us)
    with DaemonClient(home) as client:
        past = client.telemetry(name, since_us=max(0, formatting.now_us() - history_us), step_us=step_us)
    return answer(as_json, past, lambda: past_lines(past, stdout_output()))


def _row(device: DeviceInfo) -> tuple[str, ...]:
    in_use = max(0, device.used_bytes - device.left_bytes)
    sizes = (device.capacity_bytes, device.granted_bytes, in_use, device.free_bytes, device.stored_bytes)
    counts = (str(len(device.jobs)), str(len(device.queue)))
    return (device.id, *map(format_size, sizes), *counts, format_time_us(device.quantum_us), device.oversubscribe)


def _below(listed: DeviceList) -> Iterator[str]:
    for device in listed.devices:
        if device.drained:
            yield f"  {device.id} {escaped(device.drained)}; no new job is placed there (`carpool undrain {device.id}`)"
        if device.reserve_bytes:
            size = format_size(device.reserve_bytes)
            yield f"  {device.id} reserve: {size} for other programs (`carpool set reserve=... --device {device.id}`)"
        yield from (lane_line(device, lane) for lane in device.lanes)
        if device.weights_bytes:
            size = format_size(device.weights_bytes)
            yield f"  {device.id} weights of models: {size}, evicted when other jobs need the memory"
        if device.left_bytes:
            size = format_size(device.left_bytes)
            yield f"  {device.id} device buffers: {size} more, left by earlier jobs for the next ones"
        if moved := formatting.moved(device.moved):
            yield f"  {device.id} moved by its jobs: {moved}"
        yield sharing_line(device)
        yield from measured_lines(device)
    yield formatting.store_line(listed.store)


def lane_line(device: DeviceInfo, lane: LaneInfo) -> str:
    """Return one line about a lane: its size, its jobs, the job that computes and those that wait for the turn."""
    holder = f"job {lane.holder} computes" if lane.holder is not None else "idle"
    waiting = f", waiting: {', '.join(map(str, lane.waiting))}" if lane.waiting else ""
    size, jobs = format_size(lane.size_bytes), plural(len(lane.jobs), "job")
    return f"  {device.id} lane {lane.id}: {size}, {jobs}, {holder}{waiting}"


def sharing_line(device: DeviceInfo) -> str:
    """Return one line that says how the lanes share a device, or which job has the device to itself."""
    if device.alone is not None:
        return f"  {device.id} sharing: exclusive to job {device.alone} (`carpool show {device.alone}` shows why)"
    return f"  {device.id} sharing: {SHARING.get(device.sharing, device.sharing)}"
