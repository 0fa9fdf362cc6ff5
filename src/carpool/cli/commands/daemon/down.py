"""``carpool down``: stop the daemon."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import answer, plural, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.progress import Progress
from carpool.protocol.client import DaemonClient, DaemonNotAnswering, DaemonNotRunning

PATIENCE_S = 60.0


@click.command("down", short_help="Stop the daemon; jobs keep running.")
@click.option("--stop-jobs", is_flag=True, help="Cancel the running jobs first.")
@with_common_options
def command(home: Path, as_json: bool, stop_jobs: bool) -> int:
    """Stop the daemon; jobs keep running unless --stop-jobs is given.

    Without a daemon, a job computes until it needs a turn.  The next daemon takes the jobs over.
    """
    try:
        # A daemon of another version must still be stoppable: that is the way to get rid of it.
        with DaemonClient(home, check_version=False) as client:
            running = _stop(client, stop_jobs)
    except DaemonNotRunning:
        return answer(as_json, {"stopped": False, "jobs_left": 0}, lambda: ["no daemon is running"])
    left = 0 if stop_jobs else running
    keeps_on = f"; {plural(left, 'job')} {'keeps' if left == 1 else 'keep'} running" if left else ""
    return answer(as_json, {"stopped": True, "jobs_left": left}, lambda: [f"the daemon has stopped{keeps_on}"])


def _stop(client: DaemonClient, stop_jobs: bool) -> int:
    """Stop the daemon, and return how many jobs had a process."""
    running = len(client.jobs([phase for phase in formatting.ACTIVE if phase != "queued"]))
    # Opened before the request, while the process certainly exists.
    process = os.pidfd_open(client.version().pid)
    try:
        with Progress("stopping the daemon"):
            client.shutdown(stop_jobs=stop_jobs)
            _await_end(process)
    except DaemonNotAnswering:
        _await_end(process)  # the daemon was stopping already
    finally:
        os.close(process)
    return running


def _await_end(process: int) -> None:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    started = time.monotonic()
    if not poll.poll(PATIENCE_S * 1000):
        seconds = int(time.monotonic() - started)
        raise Problem(
            Exit.TIMEOUT,
            "still_stopping",
            f"the daemon has not stopped after {seconds} s",
            "see daemon.log in its directory; if the daemon hangs, kill it (pid in daemon.pid): no job is lost",
        )
