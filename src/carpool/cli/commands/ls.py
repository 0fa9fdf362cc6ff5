"""``carpool ls``: jobs, and why queued jobs are waiting."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import click

from carpool.cli.base.job_states import STATES, jobs_in
from carpool.cli.base.options_common import POSITIVE, print_json, print_lines, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.style import Style, stdout_style
from carpool.cli.render.table import Paint, shorten, table, terminal_width
from carpool.protocol.api import JobInfo, JobList
from carpool.protocol.client import DaemonClient
from carpool.protocol.escaping import escaped
from carpool.protocol.units import format_duration

RECENT = 10
NAME_WIDTH = 32
HEADER = ("ID", "NAME", "STATE", "DEVICE", "TURN", "MEMORY P/E", "ITER", "TIME", "WHY")


@click.command("ls", short_help="List jobs and why queued jobs are waiting.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only jobs in this state; repeatable.",
)
@click.option("--all", "-a", "everything", is_flag=True, help="All jobs, also those that ended long ago.")
@click.option("--limit", "-n", type=POSITIVE, help="Only the newest N jobs.")
@with_common_options
def command(home: Path, as_json: bool, states: tuple[str, ...], everything: bool, limit: int | None) -> int:
    """List jobs: all that have not ended, and the ten that ended last.

    TURN: yes if the job computes now.  MEMORY P/E: persistent / ephemeral.  TIME: from the submission to the end.
    WHY: what a job waits for, or why it ended; of a running job, why it needs its device to itself, or why its memory
    cannot be moved.
    """
    gc.disable()  # ten thousand objects that live to the end: looking for garbage among them takes a tenth of the time
    with DaemonClient(home) as client:
        found = _select(client, states, everything, limit)
    jobs = found.jobs
    if found.notice:
        click.echo(f"carpool: {found.notice}", err=True)
    if as_json:
        print_json(found)
    elif not jobs:
        print_lines(["no jobs" + ("" if everything or states else " yet: carpool submit -- python train.py")])
    else:
        print_lines(job_table(jobs, stdout_style(), terminal_width()))
    return 0


def _select(client: DaemonClient, states: Sequence[str], everything: bool, limit: int | None) -> JobList:
    if everything or states or limit:
        return jobs_in(client, states, limit)
    active = client.job_list(formatting.ACTIVE)
    ended = client.jobs(("ended",), RECENT)
    # A job may end between the two requests: the later answer counts.
    merged = {job.id: job for job in (*active.jobs, *ended)}
    return JobList([merged[number] for number in sorted(merged)], active.notice)


def job_table(jobs: Sequence[JobInfo], style: Style, width: int | None) -> list[str]:
    """The lines of the table, cut to ``width`` columns (None: not cut), with jobs that compute or failed in colour."""
    now = formatting.now_us()
    name_width = NAME_WIDTH if width is not None else 1000
    rows = [_row(job, now, name_width) for job in jobs]
    return table(HEADER, rows, style, width, [_paint(job, style) for job in jobs])


def _row(job: JobInfo, now: int, name_width: int) -> tuple[str, ...]:
    return (
        str(job.id),
        shorten(escaped(formatting.title(job)), name_width),
        formatting.state(job),
        job.device or "-",
        "yes" if job.holds_turn else "-",
        formatting.memory_pair(job),
        formatting.iterations(job),
        format_duration(formatting.completion_us(job, now)),
        escaped(formatting.why(job)),
    )


def _paint(job: JobInfo, style: Style) -> Paint | None:
    if job.holds_turn:
        return style.green
    if job.outcome in ("failed", "lost", "refused"):
        return style.red
    return style.dim if job.outcome else None
