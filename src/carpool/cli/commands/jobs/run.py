"""``carpool run``: a job in the foreground, with this terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import with_common_options
from carpool.cli.request.awaited_jobs import awaited_jobs
from carpool.cli.request.job_options import submission, with_foreground_options
from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.display import escaped

# Imported here and not where it is needed: the interpreter ignores a Ctrl-C in the middle of an import.
from carpool.runtime.shim.__main__ import JobRefused, supervise


@click.command("run", short_help="Run a job in the foreground.", context_settings={"allow_interspersed_args": False})
@with_foreground_options
@with_common_options
def command(home: Path, as_json: bool, words: tuple[str, ...], asked: dict[str, Any]) -> int:
    """Run a job in the foreground; this command exits with the job's exit code.

    Input, output and Ctrl-C go to the job.  If signal n killed the job, the exit code is 128 + n.  --json affects error
    messages only.
    """
    asked["after"] = awaited_jobs(home, asked["after"])
    request = submission(words, asked, foreground=True)
    with connected(home) as client:
        job = client.submit(request)
        try:
            _say_if_it_waits(client, job)
            return _supervised(home, job)
        except KeyboardInterrupt:
            return _withdrawn(client, job)


def _say_if_it_waits(client: DaemonClient, job: int) -> None:
    """Say on a terminal, where nothing happens yet, why a job is queued; a script needs no explanation."""
    if sys.stderr.isatty():
        info = client.job(job)
        if info.phase == "queued" and info.reason is not None:
            click.echo(f"carpool: job {job} is queued: {escaped(info.reason.text)}", err=True)


def _supervised(home: Path, job: int) -> int:
    try:
        return supervise(home, job, foreground=True)
    except JobRefused as refused:
        with DaemonClient(home) as client:
            info = client.job(job)
        if info.outcome is None:  # only the user wanted the job to end
            raise KeyboardInterrupt from None
        reason = info.reason.text if info.reason is not None else str(refused)
        raise Problem(Exit.REFUSED, "not_run", f"job {job} was not run: {escaped(reason)}") from None
    except OSError as error:
        raise Problem(Exit.FAILED, "start_failed", f"job {job}: {escaped(str(error))}", f"carpool show {job}") from None


def _withdrawn(client: DaemonClient, job: int) -> int:
    """Cancel a foreground job whose terminal has gone: nothing would ever start such a job."""
    with suppress(ClientError):  # the daemon notices by itself that no process supervises the job
        client.cancel(job)
    return Exit.INTERRUPTED
