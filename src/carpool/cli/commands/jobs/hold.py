"""``carpool hold``: keep queued jobs from starting."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.job_actions import act_on_jobs
from carpool.cli.base.job_selection import Selection, with_job_selection
from carpool.cli.base.options_common import with_common_options
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient


@click.command("hold", short_help="Keep queued jobs from starting.")
@with_job_selection
@with_common_options
def command(home: Path, as_json: bool, selection: Selection) -> int:
    """Hold queued jobs: none of them is placed on a device until `carpool release`.

    `carpool ls` says who holds a job.  A hold outlives the daemon.  A job that runs cannot be held.
    """
    return act_on_jobs(home, as_json, selection, DaemonClient.hold, _able)


def _able(job: JobInfo) -> bool:
    return job.phase == "queued"
