"""``carpool history``: what ended jobs have used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from carpool.cli.base.job_filters import Filters
from carpool.cli.base.job_selection import with_filters
from carpool.cli.base.journal_jobs import answered, job_reader
from carpool.cli.base.options_common import POSITIVE, answer, with_common_options
from carpool.cli.base.time_arguments import MOMENT
from carpool.cli.render.history import COLUMNS, UsageOfJob, as_csv, sums, table_row, used_by
from carpool.cli.render.output import stdout_output


@click.command("history", short_help="Show what ended jobs have used.")
@with_filters("Only jobs with this outcome, as in failed,cancelled; repeatable.")
@click.option("--since", "since_us", type=MOMENT, help="Only jobs that ended after this, as in 14:05, a date, or 24h.")
@click.option("--until", "until_us", type=MOMENT, help="Only jobs that ended before this.")
@click.option("--limit", "-n", type=POSITIVE, help="Only the N jobs that ended last.")
@click.option("--csv", "as_text", is_flag=True, help="Comma-separated values, for spreadsheets.")
@with_common_options
def command(
    home: Path,
    as_json: bool,
    filters: Filters,
    since_us: int | None,
    until_us: int | None,
    limit: int | None,
    as_text: bool,
) -> int:
    """Show what your ended jobs have used, in the order in which they ended; jobs are kept as limits.toml says.

    WAITED: the time in which no attempt ran.  RAN: how long all attempts ran.  DEVICE-H: hours of device time, for each
    device of a job: its turns; of a job with exclusive use of its device, the time for which the job holds it.  IDLE:
    the part of the last attempt without a turn: it waited for one, read data, or computed elsewhere.  MEMORY: most that
    the job has used of a device.  JSON and CSV have microseconds, bytes, and millionths.
    """
    with job_reader(home) as reader:
        found = [used_by(job) for job in filters.select(reader.jobs(("ended",)))]
        chosen = _chosen(found, since_us or 0, until_us, limit)
        answer(as_json, {"jobs": chosen}, lambda: as_csv(chosen) if as_text else _lines(chosen))
        return answered(reader)


def _chosen(uses: Sequence[UsageOfJob], since_us: int, until_us: int | None, limit: int | None) -> list[UsageOfJob]:
    between = (use for use in uses if since_us <= use.ended_us and (until_us is None or use.ended_us < until_us))
    found = sorted(between, key=lambda use: (use.ended_us, use.id))
    return found if limit is None else found[-limit:]


def _lines(uses: Sequence[UsageOfJob]) -> list[str]:
    if not uses:
        return ["no such job is recorded: carpool ls --all lists all jobs"]
    return [*stdout_output().table(COLUMNS, [table_row(use) for use in uses]), sums(uses)]
