"""``carpool env``: variables by which a process that something else starts is a job."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import POSITIVE, TIME_US, Parsed, print_json, with_common_options
from carpool.cli.request.job_options import checked_text, memory_hint
from carpool.cli.request.joining import variables_for
from carpool.protocol.session import JoinOptions


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
    options = JoinOptions(
        name=checked_text(name, "the name"),
        persistent_bytes=persistent,
        ephemeral_bytes=ephemeral,
        weight=weight,
        device=device,
        exclusive=exclusive,
        iterations=iterations,
        duration_us=duration_us,
        time_us=time_us,
    )
    env = {key: value for key, value in os.environ.items() if key.isidentifier()}
    with connected(home) as client:
        variables = variables_for(client, options, env)
    if as_json:
        print_json(variables)
    for key, value in {} if as_json else variables.items():
        click.echo(f"export {key}={shlex.quote(value)}")
    return 0
