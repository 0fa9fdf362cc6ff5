"""``carpool cancel``: end jobs early."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.job_actions import act_on_jobs
from carpool.cli.base.job_selection import Selection, with_job_selection
from carpool.cli.base.options_common import with_common_options
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient


@click.command("cancel", short_help="End jobs early.")
@with_job_selection
@with_common_options
def command(home: Path, as_json: bool, selection: Selection) -> int:
    """Cancel jobs: SIGTERM to all processes of a job, then SIGKILL to those that remain (after `kill_after_us`).

    Returns when the daemon has recorded the request on disk; `carpool wait` waits until the jobs have ended.  One id
    that fails does not keep the others from being cancelled; the exit code is that of the first failure.  For a job
    that has already ended it is 5.
    """
    return act_on_jobs(home, as_json, selection, _cancel)


def _cancel(client: DaemonClient, job: int) -> JobInfo:
    client.cancel(job)
    return client.job(job)
