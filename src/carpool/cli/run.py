"""``carpool run``: a job in the foreground, with this terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from carpool.cli.common import with_common_options
from carpool.cli.exit_codes import Exit
from carpool.cli.problem import Problem
from carpool.cli.starting import connected
from carpool.cli.submission import submission, with_submission_options
from carpool.protocol.client import Client, ClientError


@click.command("run", short_help="Run a job in the foreground.", context_settings={"allow_interspersed_args": False})
@with_submission_options
@with_common_options
def command(home: Path, as_json: bool, **options: Any) -> int:
    """Run a job in the foreground; its exit code is this command's.

    Input, output and Ctrl-C go to the job.  A job killed by signal n gives 128 + n.  --json changes errors only.
    """
    request = submission(**options, foreground=True)
    with connected(home) as client:
        job = client.submit(request)
    return _supervised(home, job)


def _supervised(home: Path, job: int) -> int:
    from carpool.runtime.shim import Refused, supervise  # what only this command needs

    try:
        return supervise(home, job, foreground=True)
    except Refused as refused:
        _withdraw(home, job)
        raise Problem(Exit.REFUSED, "not_run", f"job {job} was not run: {_reason(home, job) or refused}") from None
    except OSError as error:
        raise Problem(Exit.FAILED, "start_failed", f"job {job}: {error}", f"carpool show {job}") from None


def _withdraw(home: Path, job: int) -> None:
    """Nobody would ever start a foreground job whose terminal has gone."""
    try:
        with Client(home) as client:
            client.cancel(job)
    except ClientError:
        pass  # the daemon cancels it when it notices that nobody supervises it


def _reason(home: Path, job: int) -> str:
    try:
        with Client(home) as client:
            info = client.job(job)
    except ClientError:
        return ""
    return info.reason.text if info.reason is not None else ""
