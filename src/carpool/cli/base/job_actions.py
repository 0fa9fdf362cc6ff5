"""One action on several jobs, side by side: what each came to, and the exit code of the first failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit, exit_code_of
from carpool.cli.base.options_common import JOB_ID, print_json
from carpool.cli.render import formatting
from carpool.cli.render.style import stderr_style
from carpool.protocol.api import JobInfo
from carpool.protocol.client import ApiError, DaemonClient
from carpool.protocol.escaping import escaped

AT_ONCE = 32
F = TypeVar("F", bound=Callable[..., object])
#: Asks the daemon for something, and returns the job as it is then.
Action = Callable[[DaemonClient, int], JobInfo]


def with_selection(function: F) -> F:
    """Adds ``jobs``, ``everything`` and ``user``, which `selected` understands."""
    function = click.option("--user", metavar="NAME", help="All jobs of this user that it can be done to.")(function)
    function = click.option("--all", "everything", is_flag=True, help="All your jobs that it can be done to.")(function)
    return click.argument("jobs", type=JOB_ID, nargs=-1)(function)


def selected(
    home: Path, jobs: tuple[int, ...], everything: bool, user: str | None, able: Callable[[JobInfo], bool]
) -> tuple[int, ...]:
    """The jobs that are meant.  Raises UsageError, and Problem for an unknown user."""
    if bool(jobs) == (everything or user is not None):
        raise click.UsageError("give ids of jobs, or --all, or --user")
    if jobs:
        return jobs
    uid = os.getuid() if user is None else _uid(user)
    with DaemonClient(home) as client:
        return tuple(job.id for job in client.jobs(formatting.ACTIVE) if job.owner == uid and able(job))


def _uid(user: str) -> int:
    import pwd  # what most commands do not need

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise Problem(Exit.NOT_FOUND, "unknown_user", f"there is no user {user!r}", "check --user") from None


def act_on_jobs(home: Path, as_json: bool, jobs: tuple[int, ...], action: Action) -> int:
    """One job that fails does not keep the others from being acted on; none is no failure."""
    # Side by side: the daemon writes many of them to the disk at once, and while one after the other is cancelled those
    # behind it would start.
    with ThreadPoolExecutor(max(1, min(len(jobs), AT_ONCE))) as pool:
        outcomes = list(pool.map(partial(_outcome, home, action), jobs))
    errors = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    if as_json:
        print_json({"jobs": [_result(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]})
    else:
        for job, outcome in zip(jobs, outcomes, strict=True):
            _say(job, outcome)
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


def _say(job: int, outcome: JobInfo | ApiError) -> None:
    if isinstance(outcome, ApiError):
        hint = f"\n  {escaped(outcome.info.hint)}" if outcome.info.hint else ""
        click.echo(f"{stderr_style().red('carpool:')} {escaped(outcome.info.message)}{hint}", err=True)
    else:
        click.echo(f"job {job} {formatting.state(outcome)}")
