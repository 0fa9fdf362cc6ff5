"""``carpool logs``: what a job has written."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

import click

from carpool.cli.base.job_selection import the_job, with_one_job
from carpool.cli.base.job_words import JobWord
from carpool.cli.base.options_common import POSITIVE, print_json, with_common_options
from carpool.protocol.client import DaemonClient


@click.command("logs", short_help="Print the output of a job.")
@with_one_job
@click.option("--follow", "-f", is_flag=True, help="Keep printing until the job has ended.")
@click.option("--lines", "-n", type=POSITIVE, help="Only the last N lines (with -f, also what follows).")
@click.option(
    "--attempt", type=POSITIVE, help="Output of this attempt of a job that was retried.  [default: the latest]"
)
@with_common_options
def command(home: Path, as_json: bool, job: JobWord, follow: bool, lines: int | None, attempt: int | None) -> int:
    """Print what a job has written to standard output and standard error.

    With --json: one object per piece, {"text": "..."}.
    """
    with DaemonClient(home) as client:
        number = the_job(client, job)
        if lines is not None:
            past, end = client.past_log(number, attempt=attempt)
            _write(b"".join(deque(past.splitlines(keepends=True), lines)), as_json)
        if lines is None or follow:
            offset = 0 if lines is None else end
            for piece in client.logs(number, follow=follow, offset=offset, attempt=attempt):
                _write(piece, as_json)
    return 0


def _write(piece: bytes, as_json: bool) -> None:
    if as_json:
        if piece:
            print_json({"text": piece.decode(errors="replace")})
    else:
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()
