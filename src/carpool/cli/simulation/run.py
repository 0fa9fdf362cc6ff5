"""Simulate under one policy after the other, and write the files that were asked for; or verify a journal.

Verifying (`--from-journal --verify`): whether today's core decides as the daemon's core did.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import plural, print_json
from carpool.cli.render.progress import Progress
from carpool.cli.simulation.options import Wanted
from carpool.cli.simulation.outputs import writing
from carpool.protocol.paths import path_of_policy
from carpool.protocol.units import format_duration

if TYPE_CHECKING:
    from carpool.sim.model.options import Options
    from carpool.sim.model.result import Result
    from carpool.sim.model.trace_job import TraceJob
    from carpool.sim.replay import Replay
    from carpool.sim.results.summary import Summary


def run_all(wanted: Wanted, jobs: list[TraceJob], options: Sequence[Options]) -> list[Summary]:
    """Return one summary per policy.  Results are kept for a report only: a million jobs are a gigabyte."""
    from carpool.sim.results.summary import summarize

    summaries, kept = [], []
    for each in options:
        result = _run(jobs, _with_resolution(wanted, jobs, each))
        _write_csv(wanted, result)
        summaries.append(summarize(result))
        if wanted.report is not None:
            kept.append(result)
    if wanted.report is not None:
        from carpool.sim.report import write_report

        with Progress("writing the report"), writing(wanted.report):
            write_report(kept, wanted.report)
    return summaries


def _run(jobs: list[TraceJob], options: Options) -> Result:
    from carpool.sim import driver

    policy, total = options.settings.policy, len(jobs)
    with Progress(f"simulating {policy}") as progress:
        try:
            return driver.simulate(
                jobs, options, lambda done: progress.update(f"{policy} {done:,} of {total:,} jobs", done, total)
            )
        except ValueError as error:
            raise Problem(Exit.FAILED, "simulation", str(error)) from error


def _with_resolution(wanted: Wanted, jobs: list[TraceJob], options: Options) -> Options:
    """Set the resolution that --resolution gives, else one that keeps the simulation short, and print a note then."""
    from carpool.sim.model.options import suggested_resolution_us

    if wanted.resolution_us is not None:
        return dataclasses.replace(options, resolution_us=wanted.resolution_us)
    resolution = suggested_resolution_us(jobs, options.settings)
    if resolution:
        policy, time = options.settings.policy, format_duration(resolution)
        print(f"{policy}: turns shorter than {time} are not modelled (--resolution 0 models all)", file=sys.stderr)
    return dataclasses.replace(options, resolution_us=resolution)


def _write_csv(wanted: Wanted, result: Result) -> None:
    from carpool.sim.results.csv_files import write_jobs_csv, write_runs_csv

    for wish, write in ((wanted.jobs_csv, write_jobs_csv), (wanted.runs_csv, write_runs_csv)):
        if wish is not None:
            path = path_of_policy(wish, result.options.settings.policy, wanted.policies)
            with writing(path):
                write(result, path)


def verify(journal: Path, as_json: bool) -> Exit:
    """Replay a journal and print the result.  Raises Problem for a journal that cannot be read or verified."""
    from carpool.sim.replay import replay_journal

    try:
        with Progress("replaying the journal"):
            found = replay_journal(journal)
    except ValueError as error:
        raise Problem(Exit.FAILED, "journal", str(error)) from error
    if not found.lives:
        raise Problem(Exit.FAILED, "journal", f"{journal}: nothing can be verified: {_incomplete(found)}")
    if as_json:
        difference = None if found.difference is None else str(found.difference)
        counts = {name: getattr(found, name) for name in ("lives", "incomplete", "events", "commands")}
        print_json({"same": difference is None, **counts, "difference": difference})
    else:
        print(_text(found))
    return Exit.OK if found.difference is None else Exit.FAILED


def _text(found: Replay) -> str:
    if found.difference is not None:
        return f"a decision differs {found.difference}"
    left_out = f"; {_incomplete(found)}" if found.incomplete else ""
    size = f"{plural(found.events, 'event')}, {plural(found.commands, 'command')}"
    return f"the same decisions: {size}, {plural(found.lives, 'start')} of the daemon{left_out}"


def _incomplete(found: Replay) -> str:
    return f"events of {plural(found.incomplete, 'start')} of the daemon are missing"
