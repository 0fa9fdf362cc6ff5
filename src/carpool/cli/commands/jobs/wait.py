"""``carpool wait``: wait until jobs have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.job_selection import Selection, selected, with_job_selection
from carpool.cli.base.options_common import TIME_US, answer, plural, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.arrays import array_id, array_outcomes, array_time, as_one, element_id
from carpool.cli.render.output import Output, stdout_output
from carpool.cli.render.progress import Progress
from carpool.protocol.api import JobInfo, JobList
from carpool.protocol.client import DaemonClient
from carpool.protocol.display import escaped
from carpool.protocol.units import format_duration

MOST_FAILED = 20  # elements of an array that are listed
POLL_S = 1.0  # how often the progress line is updated; the end itself is reported at once


@click.command("wait")
@with_job_selection
@click.option("--timeout", "timeout_us", type=TIME_US, help="Give up after this long, as in 30s or 2h.")
@with_common_options
def command(home: Path, as_json: bool, selection: Selection, timeout_us: int | None) -> int:
    """Wait until all these jobs have ended.

    Exit code 0 if all have succeeded, else that of the first job (in the order given) that has not: its own exit code,
    128 + n for signal n, or 1 if it has neither (lost, refused, cancelled before it started).  6: the timeout ran out.
    With --all there may be nothing to wait for, which is a success.  An array has one line, and one for each element
    that has not succeeded.
    """
    deadline = None if timeout_us is None else time.monotonic() + timeout_us / 1e6
    with DaemonClient(home) as client:
        jobs = _awaited(client, selection)
        for job in jobs:
            client.job(job)  # an unknown id is reported now, not after hours of waiting for other jobs
        with Progress(f"waiting for {plural(len(jobs), 'job')}") as progress:
            ended = [_ended(client, job, deadline, progress, position, len(jobs)) for position, job in enumerate(jobs)]
    code = next((code for code in map(formatting.exit_code, ended) if code), 0)
    return answer(as_json, JobList(ended), lambda: _lines(ended), code)


def _awaited(client: DaemonClient, selection: Selection) -> list[int]:
    """Return the jobs to wait for; --all may select none.  Raises Problem if a name, a state or a word selects none."""
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
                f"job {element_id(info)} has not ended: it is {formatting.state(info)}",
                escaped(formatting.why(info)),
            )
        progress.update(_line(info, position, count), info.iterations, info.iterations_total)


def _line(job: JobInfo, position: int, count: int) -> str:
    of = f"{position + 1}/{count} " if count > 1 else ""
    done = f" {formatting.iterations(job)}" if job.iterations_total else ""
    reason = f": {escaped(formatting.why(job))}" if formatting.why(job) else ""
    return f"{of}job {element_id(job)} is {formatting.state(job)}{done}{reason}"


def _lines(jobs: Sequence[JobInfo]) -> Iterator[str]:
    if not jobs:
        yield "no job has to be waited for"
    now, output = formatting.now_us(), stdout_output()
    arrays = dict[int, list[JobInfo]]()
    for job in jobs:
        arrays.setdefault(job.id if job.array is None else job.array, []).append(job)
    for group in as_one(jobs, arrays):
        yield from _result(group[0], output) if len(group) == 1 else _array_result(group, now, output)


def _array_result(jobs: Sequence[JobInfo], now: int, output: Output) -> list[str]:
    """Return one line for the whole array, and lines for the elements that have not succeeded."""
    first = f"array {array_id(jobs)}: {array_outcomes(jobs)}, after {array_time(jobs, now)}"
    bad = [job for job in jobs if job.outcome != "succeeded"]
    rest = len(bad) - MOST_FAILED
    more = [f"  and {rest} more: carpool ls {array_id(bad[MOST_FAILED:])}"] if rest > 0 else []
    return [
        *output.wrapped([first], "" if bad else "green"),
        *(line for job in bad[:MOST_FAILED] for line in _result(job, output, "  ")),
        *output.wrapped(more),
    ]


def _result(job: JobInfo, output: Output, indent: str = "") -> list[str]:
    style = "green" if job.outcome == "succeeded" else "red"
    state, reason = formatting.state(job), f": {escaped(formatting.why(job))}" if formatting.why(job) else ""
    lasted = format_duration(formatting.completion_us(job, 0))
    first, *rest = output.wrapped([f"{indent}job {element_id(job)} {state} after {lasted}{reason}"])
    return [first.replace(state, output.painted(style, state), 1), *rest]
