"""``carpool retry``: run ended jobs once more."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit
from carpool.cli.base.job_actions import say_why_not
from carpool.cli.base.job_selection import Selection, selected_failed, with_job_selection
from carpool.cli.base.options_common import answer, with_common_options
from carpool.cli.render.arrays import element_id
from carpool.cli.request.job_options import captured_environment, variables_of, with_variable_options
from carpool.protocol.api import LeftOut, RetryResponse
from carpool.protocol.client import PAGE, ApiError, DaemonClient

_FIELDS = ("ids", "retried", "left")


@click.command("retry", short_help="Run ended jobs once more.")
@partial(with_job_selection, all_of="All your jobs that have ended without success.")
@with_variable_options
@with_common_options
def command(
    home: Path,
    as_json: bool,
    selection: Selection,
    asked: dict[str, Any],
) -> int:
    """Run jobs again that did not succeed, as new jobs, and print the new ids, as in 12 or 7_3.

    Of an array, its elements that have ended without success run again, in their places.  A
    single id or element may have succeeded.  Command, directory, options and parameters are those of the first run;
    the environment is that of this shell, since Carpool erases an ended job's.  Only your own jobs.  Examples:

    \b
        carpool retry 7
        carpool retry 7[0-9] --env WANDB_MODE=offline
        carpool retry --state failed --name "train-*"
    """
    own = variables_of(asked)
    env = captured_environment(os.environ) | own
    with DaemonClient(home) as client:
        jobs = selected_failed(client, selection)
        answers = _retried(client, jobs, env, list(own))
        ids, retried, left = (list(chain(*map(attrgetter(name), answers))) for name in _FIELDS)
        names = {} if as_json else _names(client, ids)
    answer(as_json, RetryResponse(ids, retried, left), lambda: (names[number] for number in ids))
    for error in () if as_json else dict.fromkeys(each.error for each in left):
        say_why_not(error)
    return Exit.REFUSED if left else Exit.OK


def _names(client: DaemonClient, ids: Sequence[int]) -> dict[int, str]:
    """Return the names of jobs as in `carpool ls`; for several ids, the daemon is asked for all jobs at once."""
    known = [client.job(number) for number in ids] if len(ids) == 1 else client.jobs() if ids else []
    found = {job.id: element_id(job) for job in known}
    return {number: found.get(number, str(number)) for number in ids}


def _retried(client: DaemonClient, jobs: Sequence[int], env: dict[str, str], given: list[str]) -> list[RetryResponse]:
    """Retry jobs.  Raises ApiError for a single job that cannot be retried; of several, the answers name such jobs."""
    if len(jobs) == 1:
        return [client.retry(jobs, env, given)]
    pages = (jobs[first : first + PAGE] for first in range(0, len(jobs), PAGE))
    return [_retried_page(client, page, env, given) for page in pages]


def _retried_page(client: DaemonClient, jobs: Sequence[int], env: dict[str, str], given: list[str]) -> RetryResponse:
    try:
        return client.retry(jobs, env, given)
    except ApiError:
        return _retried_singly(client, jobs, env, given)


def _retried_singly(client: DaemonClient, jobs: Sequence[int], env: dict[str, str], given: list[str]) -> RetryResponse:
    """Retry each job by itself: the error for several of which none can be retried is that of the first job only."""
    found = RetryResponse([], [], [])
    for job in jobs:
        try:
            retried = client.retry([job], env, given)
        except ApiError as error:
            found.left.append(LeftOut(job, error.info))
        else:
            found.ids.extend(retried.ids)
            found.retried.extend(retried.retried)
    return found
