"""``carpool cancel``: end jobs early."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli import words
from carpool.cli.common import JOB_ID, print_json, with_common_options
from carpool.cli.exit_codes import exit_code_of
from carpool.cli.style import stderr_style
from carpool.protocol.api import ErrorInfo
from carpool.protocol.client import ApiError, Client


@click.command("cancel", short_help="End jobs early.")
@click.argument("jobs", type=JOB_ID, nargs=-1, required=True)
@with_common_options
def command(home: Path, as_json: bool, jobs: tuple[int, ...]) -> int:
    """Cancel jobs: SIGTERM, then, if that does not help, SIGKILL, for all processes of each.

    Returns when the daemon has noted it, on disk; `carpool wait` waits for the end.  All ids are tried; the exit code
    is that of the first problem.  A job that has ended stays as it is.
    """
    exit_code = 0
    results: list[dict[str, object]] = []
    with Client(home) as client:
        for job in jobs:
            try:
                client.cancel(job)
                results.append({"id": job, "state": words.state(client.job(job)), "error": None})
            except ApiError as error:
                exit_code = exit_code or exit_code_of(error)
                results.append({"id": job, "state": None, "error": error.info})
    if as_json:
        print_json({"jobs": results})
    else:
        for result in results:
            _say(result)
    return exit_code


def _say(result: dict[str, object]) -> None:
    error = result["error"]
    if isinstance(error, ErrorInfo):
        click.echo(f"{stderr_style().red('carpool:')} {error.message}", err=True)
    else:
        click.echo(f"job {result['id']} {result['state']}")
