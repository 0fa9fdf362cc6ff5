"""``carpool wait``: until jobs have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.cli.base.job_selection import Selection, selected, with_job_selection
from carpool.cli.base.options_common import TIME_US, plural, print_json, print_lines, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.output import Output, stdout_output
from carpool.cli.render.progress import Progress
from carpool.protocol.api import JobInfo, JobList
from carpool.protocol.client import DaemonClient
from carpool.protocol.escaping import escaped
from carpool.protocol.units import format_duration

POLL_S = 1.0  # how often the progress line hears of the job; the end itself is reported at once


@click.command("wait")
@with_job_selection
@click.option("--timeout", "timeout_us", type=TIME_US, help="Give up after this long, as in 30s or 2h.")
@with_common_options
def command(home: Path, as_json: bool, selection: Selection, timeout_us: int | None) -> int:
    """Wait until all these jobs have ended.

    Exit code 0 if all have succeeded, else that of the first job (in the order given) that has not: its own exit code,
    128 + n for signal n, or 1 if it has neither (lost, refused, cancelled before it started).  6: the timeout ran out.
    With --all there may be nothing to wait for, which is a success.
    """
    deadline = None if timeout_us is None else time.monotonic() + timeout_us / 1e6
    with DaemonClient(home) as client:
        jobs = _awaited(client, selection)
        for job in jobs:
            client.job(job)  # an unknown id must not come out after hours of waiting for the others
        with Progress(f"waiting for {plural(len(jobs), 'job')}") as progress:
            ended = [_ended(client, job, deadline, progress, position, len(jobs)) for position, job in enumerate(jobs)]
    if not ended and not as_json:
        print_lines(["no job has to be waited for"])
    _report(ended, as_json)
    return next((code for code in map(formatting.exit_code, ended) if code), 0)


def _awaited(client: DaemonClient, selection: Selection) -> list[int]:
    """Of all jobs there may be none.  A name, a state or a word that selects nothing is a mistake."""
    filters = selection.filters
    if filters.everything and not filters.states and not filters.names:
        return [job.id for job in client.jobs(formatting.ACTIVE) if filters.owned(job)]
    return selected(client, selection)


def _ended(
    client: DaemonClient, job: int, deadline: float | None, progress: Progress, position: int, count: int
) -> JobInfo:
    while True:
        left = POLL_S if deadline is None else min(POLL_S, max(0.0, deadline - time.monotonic()))
        info = client.wait(job, left)
        if info.outcome is not None:
            return info
        if deadline is not None and time.monotonic() >= deadline:
            raise Problem(
                Exit.TIMEOUT,
                "timeout",
                f"job {job} has not ended: it is {formatting.state(info)}",
                escaped(formatting.why(info)),
            )
        progress.update(_line(info, position, count), info.iterations, info.iterations_total)


def _line(job: JobInfo, position: int, count: int) -> str:
    of = f"{position + 1}/{count} " if count > 1 else ""
    done = f" {formatting.iterations(job)}" if job.iterations_total else ""
    reason = f": {escaped(formatting.why(job))}" if formatting.why(job) else ""
    return f"{of}job {job.id} is {formatting.state(job)}{done}{reason}"


def _report(jobs: Sequence[JobInfo], as_json: bool) -> None:
    if as_json:
        print_json(JobList(list(jobs)))
        return
    for job in jobs:
        print_lines(_result(job, stdout_output()))


def _result(job: JobInfo, output: Output) -> list[str]:
    style = "green" if job.outcome == "succeeded" else "red"
    state, reason = formatting.state(job), f": {escaped(formatting.why(job))}" if formatting.why(job) else ""
    lasted = format_duration(formatting.completion_us(job, 0))
    first, *rest = output.wrapped([f"job {job.id} {state} after {lasted}{reason}"])
    return [first.replace(state, output.painted(style, state), 1), *rest]
