"""One action on several jobs in parallel: the result for each job, and the exit code of the first failure."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click

from carpool.cli.base.cli_error import exit_code_of
from carpool.cli.base.job_selection import Selection, selected
from carpool.cli.base.options_common import print_json
from carpool.cli.render import formatting
from carpool.cli.render.arrays import element_id
from carpool.cli.render.output import stderr_output
from carpool.protocol.api import ErrorInfo, JobInfo
from carpool.protocol.client import ApiError, DaemonClient
from carpool.protocol.display import escaped

AT_ONCE = 32
#: Asks the daemon for an action on a job, and returns the job as it is afterwards.
Action = Callable[[DaemonClient, int], JobInfo]


def act_on_jobs(
    home: Path, as_json: bool, selection: Selection, action: Action, able: Callable[[JobInfo], bool] = lambda job: True
) -> int:
    """Do an action on each selected job and return the exit code; a job that fails does not stop the others.

    ``able``: whether the action can be done on a job; options and patterns mean such jobs only.
    """
    with DaemonClient(home) as client:
        jobs = selected(client, selection, formatting.ACTIVE, able)
    # In parallel: the daemon writes many requests to the disk at once, and while jobs were cancelled one by one, later
    # jobs would start.
    with ThreadPoolExecutor(max(1, min(len(jobs), AT_ONCE))) as pool:
        outcomes = list(pool.map(partial(_outcome, home, action), jobs))
    errors = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    if as_json:
        print_json({"jobs": [_result(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]})
    else:
        for outcome in outcomes:
            _say(outcome)
    return exit_code_of(errors[0]) if errors else 0


def _outcome(home: Path, action: Action, job: int) -> JobInfo | ApiError:
    with DaemonClient(home) as client:
        try:
            return action(client, job)
        except ApiError as error:
            return error


def _result(job: int, outcome: JobInfo | ApiError) -> dict[str, object]:
    if isinstance(outcome, ApiError):
        return {"id": job, "state": None, "error": outcome.info}
    return {"id": job, "state": formatting.state(outcome), "error": None}


def _say(outcome: JobInfo | ApiError) -> None:
    if isinstance(outcome, ApiError):
        say_why_not(outcome.info)
    else:
        click.echo(f"job {element_id(outcome)} {formatting.state(outcome)}")


def say_why_not(error: ErrorInfo) -> None:
    """Print on standard error why the action failed on one of several jobs."""
    hint = f"\n  {escaped(error.hint)}" if error.hint else ""
    click.echo(f"{stderr_output().painted('red', 'carpool:')} {escaped(error.message)}{hint}", err=True)
