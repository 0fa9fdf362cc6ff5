"""``carpool undrain``: jobs may be placed on a device again."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.options_common import print_json, with_common_options
from carpool.protocol.api import DeviceRequest
from carpool.protocol.client import DaemonClient


@click.command("undrain", short_help="Place jobs on a drained device again.")
@click.argument("device")
@with_common_options
def command(home: Path, as_json: bool, device: str) -> int:
    """Place jobs on a device again that `carpool drain` keeps free of new ones."""
    with DaemonClient(home) as client:
        info = client.set_device(device, DeviceRequest(drain=False))
    if as_json:
        print_json(info)
    else:
        click.echo(f"{device}: jobs are placed there again")
    return 0
