"""``carpool submit``: hand a job over and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from carpool.cli.common import print_json, with_common_options
from carpool.cli.starting import connected
from carpool.cli.submission import submission, with_submission_options
from carpool.protocol.api import SubmitResponse


@click.command("submit", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@with_submission_options
@with_common_options
def command(home: Path, as_json: bool, **options: Any) -> int:
    """Submit a job and print its id.

    The job gets this directory, this environment and the active virtual environment.  It runs as it is, not through
    a shell.  A script.py without an interpreter runs with the virtual environment's python, else with the PATH's.
    The daemon starts by itself if none runs.  Examples:

    \b
        carpool submit -- python train.py --lr 0.1
        carpool submit --iterations 2000 --mem 300MiB/1GiB train.py
    """
    request = submission(**options)
    with connected(home) as client:
        job = client.submit(request)
    if as_json:
        print_json(SubmitResponse(job))
    else:
        click.echo(job)
    return 0
