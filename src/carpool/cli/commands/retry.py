"""``carpool retry``: run ended jobs once more."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from carpool.cli.base.job_selection import Selection, selected_failed, with_failed_selection
from carpool.cli.base.options_common import print_json, print_lines, with_common_options
from carpool.cli.request.job_options import captured_environment
from carpool.cli.request.variables import from_files, with_variable_options
from carpool.protocol.api import SubmitManyResponse
from carpool.protocol.client import DaemonClient


@click.command("retry", short_help="Run ended jobs once more.")
@with_failed_selection
@with_variable_options
@with_common_options
def command(
    home: Path,
    as_json: bool,
    selection: Selection,
    variables: Sequence[tuple[str, str]],
    env_files: Sequence[str],
) -> int:
    """Run jobs once more that did not succeed, as new jobs, and print the ids of these.

    Of an array that means its elements that have ended without success, and the new jobs take their places there.  A
    single id or element may have succeeded.  Command, directory, options and parameters are those of the first time;
    the environment is that of this shell, since Carpool erases an ended job's.  Examples:

    \b
        carpool retry 7
        carpool retry 7[0-9] --env WANDB_MODE=offline
        carpool retry --state failed --name "train-*"
    """
    env = captured_environment(os.environ) | from_files(env_files) | dict(variables)
    with DaemonClient(home) as client:
        jobs = client.retry(selected_failed(client, selection), env)
    if as_json:
        print_json(SubmitManyResponse(jobs))
    else:
        print_lines(map(str, jobs))
    return 0
