"""``carpool drain``: place nothing new on a device; ``carpool undrain``: place jobs there again."""

from __future__ import annotations

import time
from pathlib import Path

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import TIME_US, answer, plural, with_common_options
from carpool.protocol.api import DeviceInfo, DeviceRequest
from carpool.protocol.client import DaemonClient

LOOK_S = 0.2


@click.command("drain", short_help="Place no new jobs on a device.")
@click.argument("device")
@click.option("--reason", default="", help="Reason shown to users, as in --reason 'new fan'.")
@click.option("--wait", is_flag=True, help="Return when no job is left there.")
@click.option("--timeout", "timeout_us", type=TIME_US, help="With --wait: give up after this long.")
@with_common_options
def command(home: Path, as_json: bool, device: str, reason: str, wait: bool, timeout_us: int | None) -> int:
    """Place no new jobs on a device; jobs that are there keep running.

    `carpool devices` shows that the device is drained, and by whom; reasons of waiting jobs say so.  It stays drained
    when the daemon is restarted, until `carpool undrain`.
    """
    deadline = None if timeout_us is None else time.monotonic() + timeout_us / 1e6
    with DaemonClient(home) as client:
        info = client.set_device(device, DeviceRequest(drain=True, drain_reason=reason))
        if wait:
            info = _empty(client, device, deadline)
    return answer(as_json, info, lambda: [f"{device}: {info.drained}, {plural(len(info.jobs), 'job')} there"])


def _empty(client: DaemonClient, name: str, deadline: float | None) -> DeviceInfo:
    while True:
        info = next(device for device in client.devices() if device.id == name)
        if not info.jobs:
            return info
        if deadline is not None and time.monotonic() >= deadline:
            text = f"{plural(len(info.jobs), 'job')} on {name}: {', '.join(map(str, info.jobs))}"
            raise Problem(Exit.TIMEOUT, "timeout", text, f"{name} stays drained; carpool requeue moves a job elsewhere")
        time.sleep(LOOK_S)


@click.command("undrain", short_help="Place jobs on a drained device again.")
@click.argument("device")
@with_common_options
def undrain(home: Path, as_json: bool, device: str) -> int:
    """Place jobs on a drained device again."""
    with DaemonClient(home) as client:
        info = client.set_device(device, DeviceRequest(drain=False))
    return answer(as_json, info, lambda: [f"{device}: jobs are placed there again"])
