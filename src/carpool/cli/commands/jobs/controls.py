"""``carpool cancel``, ``hold``, ``release``, ``pause``, ``resume`` and ``requeue``: one action on several jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from carpool.cli.base.job_actions import Action, act_on_jobs
from carpool.cli.base.job_selection import Selection, with_job_selection
from carpool.cli.base.options_common import with_common_options
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient


def _verb(name: str, short_help: str, help_text: str, action: Action, able: Callable[[JobInfo], bool]) -> click.Command:
    """Return the command that does an action on the selected jobs; ``able``: see `act_on_jobs`."""

    @click.command(name, short_help=short_help, help=help_text)
    @with_job_selection
    @with_common_options
    def command(home: Path, as_json: bool, selection: Selection) -> int:
        return act_on_jobs(home, as_json, selection, action, able)

    return command


def _cancel(client: DaemonClient, job: int) -> JobInfo:
    client.cancel(job)
    return client.job(job)


cancel = _verb(
    "cancel",
    "End jobs early.",
    """Cancel jobs: SIGTERM to all processes of a job, then SIGKILL to those that remain (after `kill_after_us`).

    Returns when the daemon has recorded the request on disk; `carpool wait` waits until the jobs have ended.  One id
    that fails does not keep the others from being cancelled; the exit code is that of the first failure.  For a job
    that has already ended it is 5.
    """,
    _cancel,
    lambda job: True,
)

hold = _verb(
    "hold",
    "Keep queued jobs from starting.",
    """Hold queued jobs: none of them is placed on a device until `carpool release`.

    `carpool ls` says who holds a job.  A hold outlives the daemon.  A job that runs cannot be held.
    """,
    DaemonClient.hold,
    lambda job: job.phase == "queued",
)

release = _verb(
    "release",
    "Let held jobs start.",
    """Release jobs that `carpool hold` or `carpool submit --hold` keeps from starting.

    A job keeps its age: under fifo it comes before jobs that were submitted after it.  What an administrator holds only
    an administrator releases.
    """,
    DaemonClient.release,
    lambda job: job.held_by is not None,
)

pause = _verb(
    "pause",
    "Take jobs off their device, with their processes kept.",
    """Pause jobs: each loses its turn at once, and its memory moves to the host store; its processes stay.

    A paused job goes on with the same results after `carpool resume`, also under another daemon.  Its time limit stands
    still.  A job that computes on the CPU only goes on until it touches its device.  What cannot be moved stays on the
    device: memory that is pinned, or of an exclusive job (`carpool show` says why).  A queued job
    that is paused does not start.
    """,
    DaemonClient.pause,
    lambda job: job.paused_by is None and job.phase != "stopping",
)

resume = _verb(
    "resume",
    "Let paused jobs go on.",
    """Resume jobs that `carpool pause` has paused: each waits for its turn, and its memory moves back first.

    What an administrator has paused only an administrator resumes.
    """,
    DaemonClient.resume,
    lambda job: job.paused_by is not None,
)

requeue = _verb(
    "requeue",
    "Put running jobs back into the queue.",
    """Stop jobs that run, and put them back into the queue: SIGTERM, then SIGKILL (after `kill_after_us`).

    Each starts again as its next attempt, from the beginning, behind all waiting jobs; that does not count as a retry.
    """,
    DaemonClient.requeue,
    lambda job: job.phase in ("starting", "running"),
)
