"""Slurm's Epilog of Carpool: cancels what a Slurm job has left on this node's devices.

Runs as root on each node of a job when that is over; `epilog` beside this file starts it.  It ends well in any case:
Slurm takes a node out of service whose Epilog fails.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from carpool.protocol.client import ApiError, ClientError, DaemonClient

TIMEOUT_S = 10.0
LIVE = ("queued", "starting", "running")


def main() -> None:
    """Cancel what the job of the environment has left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="state directory of the node's Carpool daemon")
    home: Path = parser.parse_args().home
    try:
        with DaemonClient(home, timeout_s=TIMEOUT_S) as client:
            cancel(client, f"slurm {os.environ['SLURM_JOB_ID']}", int(os.environ["SLURM_JOB_UID"]))
    except (ClientError, KeyError, ValueError) as error:
        print(f"carpool: warning: {error}", file=sys.stderr)


def cancel(client: DaemonClient, launcher: str, owner: int) -> None:
    """Jobs of a user's that say that this has started them.  Raises ClientError."""
    for job in client.jobs(LIVE):
        if job.joined and job.launcher == launcher and job.owner == owner:
            try:
                client.cancel(job.id)
            except ApiError as error:  # it has ended by now
                print(f"carpool: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
