"""``carpool update``: change jobs that have been submitted."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.job_actions import act_on_jobs
from carpool.cli.base.job_selection import ANY, Selection, with_one_job
from carpool.cli.base.job_words import JobWord
from carpool.cli.base.options_common import with_common_options
from carpool.cli.request.awaited_jobs import Words, after, awaited_jobs
from carpool.options.codecs import Dependencies
from carpool.options.table import UPDATES, request_fields
from carpool.protocol.api import JobUpdate

#: From words for jobs to their ids.
Meant = Callable[[Sequence[Words]], Sequence[Dependencies]]
#: The value that takes a limit or a condition away.
NONE = "none"
#: Names of other tools, and of options of `carpool submit`, for the same fields.
_OTHERWISE = {"priority": "weight", "nice": "weight", "timelimit": "time", "limit": "time", "duration": "expect"}
_OTHERWISE |= {"dependency": "after", "jobname": "name", "job-name": "name", "label": "name", "starttime": "begin"}


@click.command("update", short_help="Change a job that has not ended.")
@with_one_job
@click.argument("words", nargs=-1, required=True, metavar="NAME=VALUE...")
@with_common_options
def command(home: Path, as_json: bool, job: JobWord, words: tuple[str, ...]) -> int:
    """Change a job that has not ended, or the jobs of an array that have not.

    Of any job: name, weight, time, device-time, signal, expect, iterations, group.  Of a queued job also: device,
    after, begin.  Values are those of the options of `carpool submit`; none removes a limit or condition.  A
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


def changes(words: Sequence[str], meant: Meant) -> JobUpdate:
    """Combine all changes.  ``meant``: finds the jobs that words mean.  Raises ValueError, for people."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not NAME=VALUE, as in weight=200")
        if name not in UPDATES:
            raise ValueError(f"there is nothing called {name!r} to change{_meant(name)} ({', '.join(UPDATES)})")
        found |= _change(name, value, meant)
    return JobUpdate(**found)


def _meant(name: str) -> str:
    if other := _OTHERWISE.get(name.lower()):
        return f"; in Carpool: {other}"
    near = difflib.get_close_matches(name, UPDATES, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _change(name: str, value: str, meant: Meant) -> dict[str, Any]:
    """Parse one change; an empty group is none."""
    option = UPDATES[name]
    if value == NONE and option.clearable:
        return dict(zip(option.fields, option.nothing, strict=True))
    try:
        return request_fields({option.name: _after(value, meant) if name == "after" else option.type.text(value)})
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _after(value: str, meant: Meant) -> Sequence[Dependencies]:
    """Parse ``3,4`` or ``any:3 notok:4``: all jobs that the job waits for from now on."""
    return meant([each for part in value.split() for each in after(part)])
