"""``carpool requeue``: put running jobs back into the queue."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.job_actions import act_on_jobs
from carpool.cli.base.job_selection import Selection, with_job_selection
from carpool.cli.base.options_common import with_common_options
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient


@click.command("requeue", short_help="Put running jobs back into the queue.")
@with_job_selection
@with_common_options
def command(home: Path, as_json: bool, selection: Selection) -> int:
    """Stop jobs that run, and put them back into the queue: SIGTERM, then SIGKILL (after `kill_after_us`).

    Each starts again as its next attempt, from the beginning, behind all that wait already; that counts as no retry.
    """
    return act_on_jobs(home, as_json, selection, DaemonClient.requeue, _able)


def _able(job: JobInfo) -> bool:
    return job.phase in ("starting", "running")
