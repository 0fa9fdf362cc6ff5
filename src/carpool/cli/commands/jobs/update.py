"""``carpool update``: change jobs that have been submitted."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from carpool.cli.base.job_actions import act_on_jobs
from carpool.cli.base.job_selection import ANY, Selection, with_one_job
from carpool.cli.base.job_words import JobWord
from carpool.cli.base.options_common import with_common_options
from carpool.cli.request.awaited_jobs import awaited_jobs
from carpool.cli.request.changes import changes


@click.command("update", short_help="Change a job that has not ended.")
@with_one_job
@click.argument("words", nargs=-1, required=True, metavar="NAME=VALUE...")
@with_common_options
def command(home: Path, as_json: bool, job: JobWord, words: tuple[str, ...]) -> int:
    """Change a job that has not ended, or the jobs of an array that have not.

    Of any job: name, weight, time, device-time, signal, expect, iterations, group.  Of a queued job also: device,
    after, begin.  Values are those of the options of `carpool submit`; none takes a limit or condition away.  A
    changed limit counts from the start of the attempt.  Examples:

    \b
        carpool update 3 weight=200 name=urgent
        carpool update 3 time=4h
        carpool update 3 after=none begin=22:00
        carpool update 3 'after=any:4 notok:5'
    """
    try:
        wanted = changes(words, partial(awaited_jobs, home))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return act_on_jobs(home, as_json, Selection((job,), ANY), lambda client, number: client.update(number, wanted))
