"""``carpool env``: variables by which a process that something else starts is a job."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import print_json, with_common_options
from carpool.cli.request.job_options import with_joining_options
from carpool.cli.request.joining import variables_for
from carpool.protocol.session import JoinOptions


@click.command("env", short_help="Print variables by which any process is a job.")
@with_joining_options
@with_common_options
def command(home: Path, as_json: bool, asked: JoinOptions) -> int:
    """Print variables by which a Python process that uses PyTorch is a job, whatever starts it.

    eval "$(carpool env)" sets them in a shell: from then on each process that it starts joins when it is about to use
    its device, and waits for its place there.
    """
    env = {key: value for key, value in os.environ.items() if key.isidentifier()}
    with connected(home) as client:
        variables = variables_for(client, asked, env)
    if as_json:
        print_json(variables)
    for key, value in {} if as_json else variables.items():
        click.echo(f"export {key}={shlex.quote(value)}")
    return 0
