"""``carpool ls``: jobs, and why queued jobs are waiting."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import click

from carpool.cli.base.job_states import STATES, jobs_in
from carpool.cli.base.options_common import POSITIVE, print_json, print_lines, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output, stdout_output
from carpool.protocol.api import JobInfo, JobList
from carpool.protocol.client import DaemonClient
from carpool.protocol.units import format_duration

RECENT = 10
OWNER = TableColumn("OWNER", gives_way=1)
COLUMNS = (
    *(
        TableColumn("ID", right=True),
        TableColumn("NAME", least=10),
        TableColumn("STATE"),
        TableColumn("DEVICE", gives_way=2),
    ),
    *(TableColumn("TURN", gives_way=5), TableColumn("MEMORY P/E", gives_way=3), TableColumn("ITER", gives_way=4)),
    *(TableColumn("TIME", right=True), TableColumn("WHY", prose=True)),
)


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
    cannot be moved.  OWNER: shown when the jobs are of several users.

    On a terminal, columns without content are left out, NAME is shortened first, and where WHY has no column it stands
    below its job.  Into a pipe all columns are printed whole.
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
        print_lines(job_table(jobs, stdout_output()))
    return 0


def _select(client: DaemonClient, states: Sequence[str], everything: bool, limit: int | None) -> JobList:
    if everything or states or limit:
        return jobs_in(client, states, limit)
    active = client.job_list(formatting.ACTIVE)
    ended = client.jobs(("ended",), RECENT)
    # A job may end between the two requests: the later answer counts.
    merged = {job.id: job for job in (*active.jobs, *ended)}
    return JobList([merged[number] for number in sorted(merged)], active.notice)


def job_table(jobs: Sequence[JobInfo], output: Output) -> list[str]:
    """The lines of the table, with jobs that compute, failed or are over in a style of their own."""
    now = formatting.now_us()
    rows = [_row(job, now) for job in jobs]
    columns = list(COLUMNS)
    if formatting.several_owners(jobs):
        columns.insert(2, OWNER)
        rows = [(*row[:2], formatting.owner(job.owner), *row[2:]) for job, row in zip(jobs, rows, strict=True)]
    return output.table(columns, rows, [formatting.style(job) for job in jobs])


def _row(job: JobInfo, now: int) -> tuple[str, ...]:
    return (
        str(job.id),
        formatting.title(job),
        formatting.state(job),
        job.device or "-",
        "yes" if job.holds_turn else "-",
        formatting.memory_pair(job),
        formatting.iterations(job),
        format_duration(formatting.completion_us(job, now)),
        formatting.why(job),
    )
