"""``carpool release``: let held jobs start."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.job_actions import act_on_jobs
from carpool.cli.base.job_selection import Selection, with_job_selection
from carpool.cli.base.options_common import with_common_options
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient


@click.command("release", short_help="Let held jobs start.")
@with_job_selection
@with_common_options
def command(home: Path, as_json: bool, selection: Selection) -> int:
    """Release jobs that `carpool hold` or `carpool submit --hold` keeps from starting.

    A job keeps its age: under fifo it comes before jobs that were submitted after it.  What an administrator holds only
    an administrator releases.
    """
    return act_on_jobs(home, as_json, selection, DaemonClient.release, _able)


def _able(job: JobInfo) -> bool:
    return job.held_by is not None
