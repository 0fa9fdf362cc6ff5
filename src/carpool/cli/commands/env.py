"""``carpool env``: variables by which a process that something else starts is a job."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click
import msgspec

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.daemon_start import connected
from carpool.cli.base.exit_codes import Exit
from carpool.cli.base.options_common import POSITIVE, TIME_US, Parsed, print_json, with_common_options
from carpool.cli.request.job_options import checked_text, memory_hint
from carpool.protocol.api import DeviceInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.joining import token
from carpool.protocol.paths import Home
from carpool.protocol.session import JoinOptions
from carpool.protocol.spelling import did_you_mean
from carpool.runtime.launch import LaunchError, joining_variables


@click.command("env", short_help="Print variables by which any process is a job.")
@click.option("--name", default="", help="Name of the jobs in `carpool ls`.  [default: the command]")
@click.option(
    "--mem",
    "memory",
    type=Parsed("p[/e]", memory_hint),
    help="Expected memory, as in 300MiB or 300MiB/1GiB (persistent/ephemeral).",
)
@click.option("--weight", type=POSITIVE, default=100, show_default=True, help="Share of turns under fair.")
@click.option("--iterations", type=POSITIVE, help="Iterations that each job will do.")
@click.option("--expect", "duration_us", type=TIME_US, help="Device time that each job will need, as in 90s or 2h.")
@click.option("--time", "time_us", type=TIME_US, help="Stop the job when it has run for so long, as in 2h.")
@click.option(
    "--device",
    "--device-id",
    "device",
    metavar="ID",
    help="The device; a GPU has to be named where there are several devices.  [default: any]",
)
@click.option("--exclusive", is_flag=True, help="Give each job a device to itself.")
@with_common_options
def command(
    home: Path,
    as_json: bool,
    name: str,
    memory: tuple[int, int | None] | None,
    weight: int,
    iterations: int | None,
    duration_us: int | None,
    time_us: int | None,
    device: str | None,
    exclusive: bool,
) -> int:
    """Print variables by which a Python process that uses PyTorch is a job, whatever starts it.

    eval "$(carpool env)" sets them in a shell: from then on each process that it starts joins when it is about to use
    its device, and waits for its place there.
    """
    persistent, ephemeral = memory or (None, None)
    with connected(home) as client:
        gpu, threads = _gpu(client, device), client.version().threads
    options = JoinOptions(
        name=checked_text(name, "the name"),
        persistent_bytes=persistent,
        ephemeral_bytes=ephemeral,
        weight=weight,
        device=device if gpu is None else gpu.id,
        exclusive=exclusive,
        iterations=iterations,
        duration_us=duration_us,
        time_us=time_us,
    )
    variables = _variables(home, options, threads, gpu)
    if as_json:
        print_json(variables)
    for key, value in {} if as_json else variables.items():
        click.echo(f"export {key}={shlex.quote(value)}")
    return 0


def _variables(home: Path, options: JoinOptions, threads: int | None, gpu: DeviceInfo | None) -> dict[str, str]:
    """Raises Problem where libcarpool cannot be preloaded."""
    socket = str(Home(home).session_socket.absolute())
    text, uuid = msgspec.json.encode(options).decode(), "" if gpu is None else gpu.uuid
    env = {key: value for key, value in os.environ.items() if key.isidentifier()}
    try:
        return joining_variables(env, socket=socket, options=text, token=token(home), threads=threads, cuda_device=uuid)
    except LaunchError as error:
        raise Problem(Exit.FAILED, "not_preloadable", str(error)) from None


def _gpu(client: DaemonClient, name: str | None) -> DeviceInfo | None:
    """The GPU of the jobs, which see no others; None: they use the host's memory.  Raises Problem.

    Which GPUs a process sees is decided when it starts, and it is placed later: so one has to be named.
    """
    devices = {device.id: device for device in client.devices()}
    if name is not None and name not in devices:
        hint = f"{did_you_mean(name, devices)}known: {', '.join(devices)}"
        raise Problem(Exit.USAGE, "unknown_device", f"there is no device {name!r}", hint)
    chosen = [devices[name]] if name is not None else list(devices.values())
    if len(chosen) > 1 and any(device.uuid for device in chosen):
        text = "a process sees its GPU from its start on, before it has a place, and there are several devices"
        raise Problem(Exit.USAGE, "which_device", text, f"name one: --device-id {chosen[0].id}")
    return chosen[0] if chosen and chosen[0].uuid else None
