"""``carpool ls``: jobs, and why queued jobs are waiting."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import click

from carpool.cli.base.job_filters import Filters, jobs_in
from carpool.cli.base.job_selection import Selection, listed, with_listing_selection
from carpool.cli.base.job_words import names_elements
from carpool.cli.base.journal_jobs import JobReader, answered, job_reader
from carpool.cli.base.options_common import POSITIVE, answer, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.arrays import array_row, as_one, element_id
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output, stdout_output
from carpool.protocol.api import JobInfo, JobList
from carpool.protocol.units import format_duration

RECENT = 10
_FIRST = " yet: carpool submit -- python train.py"
OWNER = TableColumn("OWNER", gives_way=1)
COLUMNS = (
    TableColumn("ID", right=True),
    TableColumn("NAME", least=10),
    TableColumn("STATE"),
    TableColumn("DEVICE", gives_way=2),
    TableColumn("TURN", gives_way=5),
    TableColumn("MEMORY P/L", gives_way=3),
    TableColumn("ITER", gives_way=4),
    TableColumn("TIME", right=True),
    TableColumn("WHY", prose=True),
)


@click.command("ls", short_help="List jobs and why queued jobs are waiting.")
@with_listing_selection
@click.option("--elements", "-e", is_flag=True, help="A row for each element of an array or a grid.")
@click.option("--limit", "-n", type=POSITIVE, help="Only the newest N jobs.")
@with_common_options
def command(home: Path, as_json: bool, selection: Selection, elements: bool, limit: int | None) -> int:
    """List jobs: all that have not ended, and the ten that ended last.  An array or a grid has one row.

    With JOBs (ids, 3-7, 7_3, names, "train-*", @, @_3), only these, ended or not.  Names mean jobs of all users here.

    TURN: yes if the job computes now.  MEMORY P/L: persistent / in its lane.  TIME: from the submission to the end.
    WHY: what a job waits for, or why it ended; of a running job, which parts are not managed by Carpool, why it
    needs exclusive use of its device, or why its memory cannot be moved.  OWNER: shown for jobs of several users.

    On a terminal, columns without content are left out, NAME is shortened first, and where WHY has no column it stands
    below its job.  Into a pipe all columns that have content are printed whole; scripts use --json.

    While no daemon runs, the user who runs it sees what its journal says, and the exit code is 3.
    """
    gc.disable()  # ten thousand objects that live to the end: looking for garbage among them takes a tenth of the time
    elements = elements or any(map(names_elements, selection.words))
    with job_reader(home) as client:
        found = _select(client, selection, limit, elements=elements)
        whole = None if elements or as_json else _arrays(client, found.jobs)
    if found.notice:
        click.echo(f"carpool: {found.notice}", err=True)
    none = ["no jobs" + ("" if _narrows(selection.filters) else _FIRST)]
    answer(as_json, found, lambda: job_table(found.jobs, stdout_output(), whole) if found.jobs else none)
    return answered(client, said=True)


def _arrays(client: JobReader, jobs: Sequence[JobInfo]) -> dict[int, list[JobInfo]]:
    """Return, by array, all elements of each array that has an element among ``jobs``."""
    return {number: client.array(number) for number in {job.array: None for job in jobs} if number is not None}


def _narrows(filters: Filters) -> bool:
    return filters.everything or bool(filters.states or filters.names or filters.users)


def _select(client: JobReader, selection: Selection, limit: int | None, *, elements: bool) -> JobList:
    filters = selection.filters
    if selection.words:
        found, notice = listed(client, selection), client.job_list(limit=1).notice
        return JobList(found[-limit:] if limit else found, notice)
    if filters.everything or filters.states or limit:
        every = jobs_in(client, filters.states, None if filters.names or filters.users else limit)
        found = filters.select(every.jobs)
        return JobList(found[-limit:] if limit else found, every.notice)
    return _usual(client, filters, elements=elements)


def _usual(client: JobReader, filters: Filters, *, elements: bool) -> JobList:
    """Return the jobs that have not ended, and the jobs of the rows that ended last."""
    active = client.job_list(formatting.ACTIVE)
    ended = _recent(client, filters, {_row_of(job, elements) for job in active.jobs}, elements=elements)
    # A job may end between the two requests: the later answer counts.
    merged = {job.id: job for job in filters.select((*active.jobs, *ended))}
    return JobList([merged[number] for number in sorted(merged)], active.notice)


def _recent(client: JobReader, filters: Filters, going_on: set[object], *, elements: bool) -> list[JobInfo]:
    """Return ended jobs of rows ``going_on`` and of the last `RECENT` other rows; read as many jobs as that takes."""
    limit = RECENT
    while True:
        newest = client.jobs(("ended",), limit)
        found = filters.select(newest)
        rows = dict.fromkeys(_row_of(job, elements) for job in reversed(found))
        shown = [row for row in rows if row not in going_on][:RECENT]
        if len(shown) == RECENT or len(newest) < limit:
            return [job for job in found if _row_of(job, elements) in {*shown, *going_on}]
        limit *= RECENT


def _row_of(job: JobInfo, elements: bool) -> object:
    """Return the key of the row that shows a job."""
    return job.id if elements or job.array is None else ("array", job.array)


def job_table(jobs: Sequence[JobInfo], output: Output, whole: dict[int, list[JobInfo]] | None = None) -> list[str]:
    """Return the lines of the table, with a style of its own for jobs that compute, failed or are over.

    ``whole``: all elements of the arrays, where an array has one row; None: each element has a row.
    """
    now = formatting.now_us()
    groups = [[job] for job in jobs] if whole is None else as_one(jobs, whole)
    rows = [_row(group, now, as_elements=whole is None) for group in groups]
    columns = list(COLUMNS)
    if formatting.several_owners(jobs):
        columns.insert(2, OWNER)
        owners = [formatting.owner(group[0].owner) for group in groups]
        rows = [(*row[:2], owner, *row[2:]) for owner, row in zip(owners, rows, strict=True)]
    return output.table(columns, rows, [_style(group) for group in groups] if output.colours else ())


def _row(group: Sequence[JobInfo], now: int, *, as_elements: bool) -> tuple[str, ...]:
    job = group[0]
    if job.array is not None and not as_elements:
        return array_row(group, now)
    return (
        element_id(job),
        formatting.title(job),
        formatting.state(job),
        job.device or "-",
        "yes" if job.holds_turn else "-",
        formatting.memory_pair(job),
        formatting.iterations(job),
        format_duration(formatting.completion_us(job, now)),
        formatting.why(job),
    )


def _style(group: Sequence[JobInfo]) -> str:
    """Return the style of a row; an array has the style of the element that deserves most attention."""
    styles = {formatting.style(job) for job in group}
    return next(style for style in ("green", "red", "", "dim") if style in styles)
