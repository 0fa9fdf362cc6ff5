"""``carpool resume``: let paused jobs go on."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.job_actions import act_on_jobs
from carpool.cli.base.job_selection import Selection, with_job_selection
from carpool.cli.base.options_common import with_common_options
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient


@click.command("resume", short_help="Let paused jobs go on.")
@with_job_selection
@with_common_options
def command(home: Path, as_json: bool, selection: Selection) -> int:
    """Resume jobs that `carpool pause` has paused: each waits for its turn, and its memory moves back before.

    What an administrator has paused only an administrator resumes.
    """
    return act_on_jobs(home, as_json, selection, DaemonClient.resume, _able)


def _able(job: JobInfo) -> bool:
    return job.paused_by is not None
