"""``carpool pause``: take jobs off their device, with their processes kept."""

from __future__ import annotations

from pathlib import Path

import click

from carpool.cli.base.job_actions import act_on_jobs
from carpool.cli.base.job_selection import Selection, with_job_selection
from carpool.cli.base.options_common import with_common_options
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient


@click.command("pause", short_help="Take jobs off their device, with their processes kept.")
@with_job_selection
@with_common_options
def command(home: Path, as_json: bool, selection: Selection) -> int:
    """Pause jobs: each loses its turn at once, and its memory moves to the host store; its processes stay.

    A paused job goes on with the same results after `carpool resume`, also under another daemon.  Its time limit stands
    still.  A job that computes on the CPU only goes on until it touches its device.  What cannot be moved stays on the
    device: memory of a job that has the device to itself, or that is pinned (`carpool show` says why).  A queued job
    that is paused does not start.
    """
    return act_on_jobs(home, as_json, selection, DaemonClient.pause, _able)


def _able(job: JobInfo) -> bool:
    return job.paused_by is None and job.phase != "stopping"
