"""``carpool cancel``: end jobs early."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click

from carpool.cli.base.exit_codes import exit_code_of
from carpool.cli.base.options_common import JOB_ID, print_json, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.output import stderr_output
from carpool.protocol.client import ApiError, DaemonClient
from carpool.protocol.escaping import escaped

AT_ONCE = 32


@click.command("cancel", short_help="End jobs early.")
@click.argument("jobs", type=JOB_ID, nargs=-1, required=True)
@with_common_options
def command(home: Path, as_json: bool, jobs: tuple[int, ...]) -> int:
    """Cancel jobs: SIGTERM to all processes of a job, then SIGKILL to those that remain (after `kill_after_us`).

    Returns when the daemon has recorded the request on disk; `carpool wait` waits until the jobs have ended.  One id
    that fails does not keep the others from being cancelled; the exit code is that of the first failure.  A job that
    has already ended is left as it is.
    """
    # Side by side: the daemon writes many of them to the disk at once, and while one after the other is cancelled those
    # behind it would start.
    with ThreadPoolExecutor(min(len(jobs), AT_ONCE)) as pool:
        outcomes = list(pool.map(partial(_cancelled, home), jobs))
    errors = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    if as_json:
        print_json({"jobs": [_result(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]})
    else:
        for job, outcome in zip(jobs, outcomes, strict=True):
            _say(job, outcome)
    return exit_code_of(errors[0]) if errors else 0


def _cancelled(home: Path, job: int) -> str | ApiError:
    """The job's state afterwards."""
    with DaemonClient(home) as client:
        try:
            client.cancel(job)
            return formatting.state(client.job(job))
        except ApiError as error:
            return error


def _result(job: int, outcome: str | ApiError) -> dict[str, object]:
    if isinstance(outcome, ApiError):
        return {"id": job, "state": None, "error": outcome.info}
    return {"id": job, "state": outcome, "error": None}


def _say(job: int, outcome: str | ApiError) -> None:
    if isinstance(outcome, ApiError):
        hint = f"\n  {escaped(outcome.info.hint)}" if outcome.info.hint else ""
        click.echo(f"{stderr_output().painted('red', 'carpool:')} {escaped(outcome.info.message)}{hint}", err=True)
    else:
        click.echo(f"job {job} {outcome}")
